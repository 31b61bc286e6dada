"""Compilation and launch of the operations' CUDA sources (`kernels/<operation>/cuda.cu`).

Nothing here is imported until a CUDA backend is requested, and nothing is compiled until a call
needs it. All imports are absolute, because NVIDIA's own package is also called `cuda`.
"""
