"""orbit-lsp: a language server that runs and measures CUDA and Triton kernels."""

__version__ = "0.1.0"
