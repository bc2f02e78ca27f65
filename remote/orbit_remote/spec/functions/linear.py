"""Products of matrices, and layers that are made of them."""

from __future__ import annotations

import math
from typing import Any

from orbit_remote.spec.functions.call import Arguments, Group, SpecFunction
from orbit_remote.spec.functions.operators import matmul
from orbit_remote.spec.functions.shapes import permuted
from orbit_remote.spec.values import Value, text_of


def _matmul(a: Arguments) -> Value:
    return matmul(a.world, a.span, a.tensor("x"), a.tensor("y"))


def _norm(a: Arguments) -> Value:
    x, shape = a.floating("x"), a.integers("normalized_shape")
    if not shape or x.shape[-len(shape) :] != shape:
        a.fail("normalized_shape", f"{text_of(shape)} is not how the shape {text_of(x.shape)} ends.")
    weight, bias = (a.tensor(name) if a.has(name) else None for name in ("weight", "bias"))
    for name, given in (("weight", weight), ("bias", bias)):
        if given and given.shape != shape:
            a.fail(name, f"'{name}' has the shape {text_of(given.shape)}, not {text_of(shape)}.")
    eps = a.number("eps", 1e-5)
    dims = tuple(range(-len(shape), 0))

    def run() -> Any:
        centred = a.function.name == "layer_norm"
        data = x.data - x.data.mean(dims, keepdim=True) if centred else x.data
        data = data * a.world.torch.rsqrt((data * data).mean(dims, keepdim=True) + eps)
        data = data * weight.data.to(data.dtype) if weight else data
        return data + bias.data.to(data.dtype) if bias else data

    return a.world.make(a.span, x.shape, x.dtype, run, max(x.terms, math.prod(shape)))


def _attention(a: Arguments) -> Value:
    world = a.world
    query, key, value = a.floating("query"), a.floating("key"), a.floating("value")
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 2:
        a.fail("query", "query, key and value have the same number of dimensions, at least 2.")
    causal = a.flag("is_causal")
    scale = a.number("scale", 1 / math.sqrt(max(1, query.shape[-1])))
    *batch, length, width = range(len(key.shape))
    scores = matmul(world, a.span, query, permuted(world, a.span, key, [*batch, width, length]))

    def softmax() -> Any:
        data = scores.data * scale
        if causal:
            later = world.torch.ones(data.shape[-2:], dtype=world.torch.bool, device=world.device).triu(1)
            data = data.masked_fill(later, -math.inf)
        return data.softmax(-1)

    shares = world.make(a.span, scores.shape, scores.dtype, softmax, max(scores.terms, scores.shape[-1]))
    return matmul(world, a.span, shares, value)


_L: Group = "Linear algebra"
LINEAR = (
    SpecFunction("matmul", "x, y", _L, "the matrix product, also x @ y", _matmul, method=True),
    SpecFunction("layer_norm", "x, normalized_shape, weight=None, bias=None, eps=1e-5", _L, "x with mean 0 and variance 1 over its last dimensions", _norm),
    SpecFunction("rms_norm", "x, normalized_shape, weight=None, eps=1e-5", _L, "x over its root mean square", _norm),
    SpecFunction("scaled_dot_product_attention", "query, key, value, is_causal=False, scale=None", _L, "softmax(query @ key.T * scale) @ value", _attention),
)  # fmt: skip
