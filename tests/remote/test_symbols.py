from __future__ import annotations

import pytest

from orbit_remote.common import symbols


@pytest.mark.parametrize(
    ("symbol", "short", "base"),
    [
        ("_Z5saxpyifPKfPf", "saxpy", "saxpy"),
        ("_Z5tiledILi32EEvPf", "tiled<32>", "tiled"),
        ("_ZN2ns5tiledILi32EfEEvPT0_", "ns::tiled<32, float>", "tiled"),
        ("_ZN2ns32_GLOBAL__N__c2a43133_4_m_cu_main4anonILi3EfEEvPT0_", "ns::(anonymous namespace)::anon<3, float>", "anon"),
        ("_Z1kIPFviEEvT_", "k<void (*)(int)>", "k"),
        ("plain_c", "plain_c", "plain_c"),
        ("_Znot mangled", "_Znot mangled", "_Znot mangled"),
    ],
)  # fmt: skip
def test_names(symbol, short, base):
    if symbols.demangle("_Z1fv") == "_Z1fv":
        pytest.skip("no C++ run time with a demangler here")
    assert symbols.short_name(symbol) == short
    assert symbols.base_name(symbol) == base


def test_without_a_demangler_the_name_is_the_symbol_or_its_identifier(monkeypatch):
    monkeypatch.setattr(symbols, "_library", lambda: None)
    symbols.demangle.cache_clear()
    assert symbols.short_name("_Z5saxpyifPKfPf") == "saxpy"
    assert symbols.short_name("_ZN2ns1kEv") == "ns::k"
    symbols.demangle.cache_clear()
