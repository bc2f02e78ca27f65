"""Products of matrices, and the layers that are made of them."""

from __future__ import annotations

import math
from typing import Any

from orbit_remote.spec.functions.call import Arguments, Function, Group
from orbit_remote.spec.functions.operators import elementwise, matmul
from orbit_remote.spec.syntax_tree import Span
from orbit_remote.spec.values import Scalar, Tensor, Value, World, text_of


def _matmul(a: Arguments) -> Value:
    return matmul(a.world, a.span, a.tensor("x"), a.tensor("y"))


def _norm(a: Arguments, *, centred: bool) -> Value:
    x, shape = a.floating("x"), a.integers("normalized_shape")
    if not shape or x.shape[-len(shape) :] != shape:
        a.fail("normalized_shape", f"{text_of(shape)} is not how the shape {text_of(x.shape)} ends.")
    weight = a.optional_tensor("weight")
    bias = a.optional_tensor("bias") if centred else None
    for name, one in (("weight", weight), ("bias", bias)):
        if one and one.shape != shape:
            a.fail(name, f"'{name}' has the shape {text_of(one.shape)}, not {text_of(shape)}.")
    eps = a.number("eps", 1e-5)
    dims = tuple(range(-len(shape), 0))

    def run() -> Any:
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
    length, width = key.shape[-2:]
    if query.shape[-1] != width:
        a.fail("key", f"query and key differ in their last extent: {query.shape[-1]} and {width}.")
    if value.shape[-2] != length:
        a.fail("value", f"key and value differ in their length: {length} and {value.shape[-2]}.")
    causal = a.flag("is_causal")
    scale = a.number("scale", 1 / math.sqrt(max(1, width)))
    scores = matmul(world, a.span, query, _transposed(world, a.span, key))
    weights = elementwise(world, a.span, "mul", [scores, Scalar(scale, "float")], scores.dtype)

    def softmax() -> Any:
        data = weights.data
        if causal:
            allowed = world.torch.ones(data.shape[-2:], dtype=world.torch.bool, device=world.device).tril()
            data = data.masked_fill(~allowed, -math.inf)
        return data.softmax(-1)

    shares = world.make(a.span, weights.shape, weights.dtype, softmax, max(weights.terms, length))
    return matmul(world, a.span, shares, value)


def _transposed(world: World, span: Span, x: Tensor) -> Tensor:
    order = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    strides = (*x.strides[:-2], x.strides[-1], x.strides[-2])
    return world.view(span, x, order, strides, lambda: x.data.transpose(-1, -2))


_L: Group = "Linear algebra"
LINEAR = (
    Function("matmul", "x, y", _L, "the matrix product, also x @ y", _matmul, method=True),
    Function("layer_norm", "x, normalized_shape, weight=None, bias=None, eps=1e-5", _L, "x with mean 0 and variance 1 over its last dimensions", lambda a: _norm(a, centred=True)),
    Function("rms_norm", "x, normalized_shape, weight=None, eps=1e-5", _L, "x over its root mean square", lambda a: _norm(a, centred=False)),
    Function("scaled_dot_product_attention", "query, key, value, is_causal=False, scale=None", _L, "softmax(query @ key.T * scale) @ value", _attention),
)  # fmt: skip
