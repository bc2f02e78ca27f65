"""Completes words inside launch specs, and nowhere else, so that other servers' lists are never mixed with ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.kernels.model import SPECIFIED
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import modal_gpus
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_lsp.views.spec import spec_place
from orbit_lsp.views.spec.spec_hover import described
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.views.spec.spec_place import SpecPlace
    from orbit_remote.spec.launch_spec import EvaluatedSpec
    from orbit_remote.spec.lexer import SpecToken
    from orbit_remote.spec.signature import Signature
    from orbit_remote.spec.syntax_tree import Language

FLAGS: Final = {
    "-O0": "no optimisation of host code", "-O3": "the most optimisation",
    "--use_fast_math": "faster, less exact mathematics", "-std=c++17": "the language", "-std=c++20": "the language",
    "-DNAME=1": "a macro", "-UNAME": "no macro", "-Iinclude": "a folder of headers", "-isystem include": "a folder of headers",
    "-arch=sm_90a": "the architecture", "-maxrregcount=64": "registers of a thread at most",
    "--expt-relaxed-constexpr": "constexpr functions of the host in kernels",
    "--expt-extended-lambda": "lambdas with __device__", "-lcublas": "a library", "-lcurand": "a library",
    "-lcufft": "a library", "-lcusparse": "a library", "-lcuda": "the driver's library",
}  # fmt: skip

_TYPES: Final[dict[Language, tuple[str, ...]]] = {
    "cuda": (
        "float", "double", "half", "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "bool", "char", "unsigned char",
        "short", "unsigned short", "int", "unsigned", "long long", "unsigned long long", "int8_t", "uint8_t", "int16_t",
        "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t",
    ),
    "triton": (
        "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool",
    ),
}  # fmt: skip

_OPERATORS = frozenset(("and", "or", "not", "in", "is", "if", "else", "within"))
_MARK = "_orbit_here_"
_WORD = re.compile(r"[A-Za-z_]\w*\Z")
_PLAIN = re.compile(r"[^\s;]*\Z")
_KINDS = lsp.CompletionItemKind


@dataclass(frozen=True, slots=True)
class Offer:
    label: str
    kind: lsp.CompletionItemKind
    detail: str = ""
    doc: str = ""
    inserted: str = ""
    rank: int = 5


@dataclass(slots=True)
class _Bracket:
    """An open bracket: what it opens, the function's name before it, and how many commas came since."""

    text: str
    name: str = ""
    method: bool = False
    commas: int = 0
    places: int = 0
    """Commas before the first `name = value`."""
    named: bool = False


def completions(session: Session, uri: str, line: int, character: int) -> list[lsp.CompletionItem] | None:
    """Return completions. Return None outside of launch specs, and if nothing can be offered."""
    place = spec_place.of(session, uri, line, character)
    if place is None:
        return None
    typed, offers = _offers(session, uri, place)
    document = place.file.document
    where = positions.of_span(
        session, document, Span(place.line, place.column - len(typed), place.line, place.column)
    )
    unique = {offer.label: offer for offer in sorted(offers, key=lambda offer: -offer.rank)}
    return [_item(offer, where) for offer in unique.values()] or None


def _item(offer: Offer, where: lsp.Range) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        offer.label,
        kind=offer.kind,
        detail=offer.detail or None,
        documentation=offer.doc or None,
        sort_text=f"{offer.rank}{offer.label.lower()}",
        text_edit=lsp.TextEdit(where, offer.inserted or offer.label),
    )


def _offers(session: Session, uri: str, place: SpecPlace) -> tuple[str, list[Offer]]:
    """Return the typed part of the word, and what it may become."""
    from orbit_remote.spec.comment_scanner import RAW, CommentPiece, statements
    from orbit_remote.spec.lexer import tokens
    from orbit_remote.spec.syntax_tree import SpecError

    above = [piece for piece in place.pieces if piece.line <= place.line]
    last = above[-1]
    text = last.text[: place.column - last.column]
    match = _WORD.search(text)
    typed = match[0] if match else ""
    cut = CommentPiece(last.line, last.column, text[: len(text) - len(typed)] + _MARK)
    read, _ = statements([*above[:-1], cut], place.language)
    if not read or not read[-1].pieces[-1].text.rstrip().endswith(_MARK):
        return typed, []  # behind a comment
    statement = read[-1]
    if statement.word in RAW and statement.pieces[-1].text.split() != [_MARK]:
        match = _PLAIN.search(text)
        return match[0] if match else "", _plain(statement.word)
    try:
        before = tokens(statement, place.language)[:-2]
    except SpecError:
        constant = re.search(r"\[\s*['\"](\w*)\Z", text)  # META['…
        return (constant[1] if constant else ""), _constants(session, uri, place) if constant else []
    checked = spec_cache.spec_of(session, uri, place.kernel) if place.kernel else None
    asked = _CursorPlace(session, uri, place, checked, before, statement.word)
    return typed, asked.offers()


def _plain(word: str) -> list[Offer]:
    if word == "gpu":
        return [Offer(name.replace(" ", "-"), _KINDS.Value, "a GPU") for name in modal_gpus.NAMES]
    if word == "flags":
        return [Offer(flag, _KINDS.Value, doc) for flag, doc in FLAGS.items()]
    return []


def _constants(session: Session, uri: str, place: SpecPlace) -> list[Offer]:
    checked = spec_cache.spec_of(session, uri, place.kernel) if place.kernel else None
    header = checked.signature if checked else None
    return [
        Offer(parameter.name, _KINDS.Constant, "constexpr")
        for parameter in (header.parameters if header else ())
        if parameter.kind == "constexpr"
    ]


class _CursorPlace:
    """A place within a statement: the tokens before it, and the brackets that are open there."""

    def __init__(
        self,
        session: Session,
        uri: str,
        place: SpecPlace,
        checked: EvaluatedSpec | None,
        before: list[SpecToken],
        word: str,
    ) -> None:
        self.session = session
        self.uri = uri
        self.place = place
        self.checked = checked
        self.before = before
        self.word = word
        self.texts = [token.text for token in before]
        self.open = _open(before, launch=word in ("launch", "reference"))

    @property
    def header(self) -> Signature | None:
        return self.checked.signature if self.checked else None

    @property
    def previous(self) -> str:
        return self.texts[-1] if self.texts else ""

    def offers(self) -> list[Offer]:
        if not self.before:
            return self.start()
        if self.previous in (".", "::"):
            return self.members()
        if self.operand():
            return self.parts()
        if not self.open:
            match self.word:
                case "launch" if len(self.before) == 1:
                    return self.kernels()
                case "reference" if self.previous in ("reference", "=="):
                    return [*self.kernels(other=True), *self.functions_of_file(), *self.assigned()]
                case "case" if self.previous in (":", ","):
                    return self.assigned()
                case "case" | "sweep" | "symbol" if len(self.before) == 1:
                    return self.names(self.word)
                case _:
                    return self.expression()
        inner = self.open[-1]
        if inner.text == "<":
            return self.template(inner.commas)
        if inner.text == "(" and self.texts[-2:-1] and self.previous == "=" and self.texts[-2] == "dtype":
            return self.types()
        values = self.expression()
        if inner.text == "(" and self.previous in ("(", ","):
            values += self.keywords(inner)
        return values

    # -- statements --------------------------------------------------------------------------------

    def start(self) -> list[Offer]:
        from orbit_remote.spec.comment_scanner import WORDS

        offers = [Offer(word, _KINDS.Keyword, "launch spec", doc, rank=2) for word, doc in WORDS.items()]
        return offers + [replace(offer, inserted=f"{offer.label} = ", rank=1) for offer in self.unassigned()]

    def unassigned(self) -> list[Offer]:
        if self.header is None or self.checked is None:
            return []
        given = {assignment.name.name for assignment in self.checked.spec.assignments}
        return [
            Offer(parameter.name, _KINDS.Variable, f"parameter {parameter.type}".strip())
            for parameter in self.header.parameters
            if parameter.name
            and parameter.name not in given
            and not parameter.refused
            and parameter.kind != "constexpr"
        ]

    def names(self, word: str) -> list[Offer]:
        if word == "sweep":
            return self.unassigned()
        if word == "symbol":
            from orbit_remote.spec.file_context import Surroundings

            lines = spec_cache.lines_of(self.session, self.uri)
            known = Surroundings(lines, self.place.language).variables()
            return [Offer(name, _KINDS.Variable, "a variable of this file") for name in known]
        return []

    def kernels(self, *, other: bool = False) -> list[Offer]:
        own = self.place.kernel.name if self.place.kernel else ""
        return [
            Offer(
                kernel.name, _KINDS.Function, "the kernel below" if kernel.name == own else "a kernel of this file",
                rank=1 if kernel.name == own else 3,
            )
            for kernel in self.place.file.scan.kernels
            if kernel.dsl in SPECIFIED and kernel.launchable and not (other and kernel.name == own)
        ]  # fmt: skip

    def functions_of_file(self) -> list[Offer]:
        if self.place.language == "cuda":
            return []
        from orbit_remote.spec.file_context import Surroundings

        lines = spec_cache.lines_of(self.session, self.uri)
        kernels = {kernel.name for kernel in self.place.file.scan.kernels}
        names = Surroundings(lines, self.place.language).functions()
        return [Offer(name, _KINDS.Function, "a function of this file", rank=2) for name in names if name not in kernels]  # fmt: skip

    def operand(self) -> bool:
        """Say whether a value ends before the cursor. Then no other value begins there."""
        token = self.before[-1]
        if token.kind == "name":
            return (len(self.before) > 1 or not self.word) and token.text not in _OPERATORS
        return token.kind in ("number", "string") or token.text in (")", "]", "}")

    def parts(self) -> list[Offer]:
        """Return what may stand behind a whole launch or expectation."""
        if self.open:
            return []
        if self.word in ("expect", "reference"):
            return [_part("within")] if "==" in self.texts or self.word == "reference" else []
        if self.word == "launch" and self.place.language == "cuda" and self.previous == ")":
            return [_part("cooperative"), _part("cluster")]
        return []

    # -- expressions -------------------------------------------------------------------------------

    def expression(self) -> list[Offer]:
        from orbit_remote.spec import interpreter

        offers = [*self.assigned(), *self.functions(), *self.types(rank=6)]
        offers += [
            Offer(name, _KINDS.Constant, "a constant", rank=7)
            for name in interpreter.CONSTANTS[self.place.language]
        ]
        if self.place.language == "cuda":
            offers += [_part("dim3", rank=4), _part("sizeof", rank=6)]
            if "=" in self.texts[:3]:
                offers.append(_part("sweep", rank=6))
        elif "=" in self.texts[:3] and self.word != "launch":
            offers.append(_part("sweep", rank=6))
        return offers

    def assigned(self) -> list[Offer]:
        if self.checked is None:
            return []
        line, column = self.place.line, self.place.column
        own = self.texts[0] if "=" in self.texts[1:2] else ""
        return [
            Offer(name, _KINDS.Variable, described(self.checked.values[name]) if name in self.checked.values else "", rank=1)
            for assignment in self.checked.spec.assignments
            if (assignment.name.span.line, assignment.name.span.end_column) < (line, column) and (name := assignment.name.name) != own
        ]  # fmt: skip

    def functions(self, *, methods: bool = False) -> list[Offer]:
        from orbit_remote.spec.functions import function_table

        language = self.place.language
        return [
            Offer(name, _KINDS.Method if methods else _KINDS.Function, function.usage, function.doc)
            for name in function_table.names(language)
            if (function := function_table.FUNCTIONS[name]) and (function.method or not methods)
        ]

    def types(self, rank: int = 3) -> list[Offer]:
        from orbit_remote.spec.dtypes import named

        language = self.place.language
        offers: list[Offer] = []
        for name in _TYPES[language]:
            dtype = named(name, language)
            means = f"{dtype.name}, {dtype.size} byte{'s' * (dtype.size != 1)}" if dtype else ""
            offers.append(Offer(name, _KINDS.TypeParameter, means, rank=rank))
        return offers

    def members(self) -> list[Offer]:
        from orbit_remote.spec.functions.shapes import ATTRIBUTES
        from orbit_remote.spec.python_expressions import PythonParser

        qualified = self.previous == "::" or (
            len(self.texts) > 1 and self.texts[-2] in PythonParser.prefixes and self.before[-2].kind == "name"
        )
        if qualified:
            return [*self.functions(), *self.types()]
        attributes = [Offer(name, _KINDS.Property, "", doc, rank=1) for name, doc in ATTRIBUTES.items()]
        return [*attributes, *self.functions(methods=True)]

    def template(self, place: int) -> list[Offer]:
        header = self.header
        template_parameter = header.templates[place] if header and place < len(header.templates) else None
        if template_parameter is None or template_parameter.kind == "type":
            return [
                replace(
                    each,
                    detail=f"{template_parameter.name} = {each.detail}"
                    if template_parameter
                    else each.detail,
                )
                for each in self.types()
            ]
        numbers = {"bool": ("true", "false")}.get(template_parameter.type, ("16", "32", "64", "128", "256"))
        offers = [
            Offer(text, _KINDS.Value, f"{template_parameter.type} {template_parameter.name}", rank=1)
            for text in numbers
        ]
        return [*offers, *self.assigned()]

    def keywords(self, inner: _Bracket) -> list[Offer]:
        """Return what may be given by name inside a call, or inside a launch of Triton."""
        from orbit_remote.spec import rules as spec_rules
        from orbit_remote.spec.functions import function_table

        if self.word in ("launch", "reference") and len(self.open) == 1 and not inner.method:
            if self.place.language == "cuda":
                return []
            given = {a for a, b in zip(self.texts, self.texts[1:], strict=False) if b == "="}
            header = self.header
            offers = [
                Offer(f"{parameter.name}=", _KINDS.Property, parameter.type or "parameter", rank=0)
                for at, parameter in enumerate(header.parameters if header else ())
                if parameter.name not in given and at >= inner.places
            ]
            options = spec_rules.OPTIONS.items()
            return offers + [Offer(f"{name}=", _KINDS.Property, "option", doc, rank=2) for name, doc in options if name not in given]  # fmt: skip
        function = function_table.function(inner.name, self.place.language)
        names = function.names[1:] if function else ()
        return [Offer(f"{name}=", _KINDS.Property, function.usage, rank=0) for name in names if function]


def _part(name: str, rank: int = 3) -> Offer:
    from orbit_remote.spec.comment_scanner import PARTS

    return Offer(name, _KINDS.Keyword, "launch spec", PARTS[name], rank=rank)


def _open(before: Iterable[SpecToken], *, launch: bool) -> list[_Bracket]:
    """Return the brackets that are open at the end, the innermost last."""
    brackets: list[_Bracket] = []
    last: SpecToken | None = None
    dotted = False
    for at, token in enumerate(before):
        text = token.text
        if token.kind != "operator":
            pass
        elif text in ("(", "[", "{", "<<<") or (text == "<" and launch and not brackets and at == 2):
            named = last is not None and last.kind == "name"
            brackets.append(_Bracket(text, last.text if named and last else "", method=named and dotted))
        elif text in (")", "]", "}", ">>>") or (text == ">" and brackets and brackets[-1].text == "<"):
            if brackets:
                brackets.pop()
        elif text == "," and brackets:
            brackets[-1].commas += 1
            brackets[-1].places += not brackets[-1].named
        elif text == "=" and brackets:
            brackets[-1].named = True
        if token.kind != "name":
            dotted = text == "."
        last = token
    return brackets
