"""Compiling and launching the operations' CUDA sources (`kernels/<operation>/cuda.cu`).

Nothing here is imported before a CUDA backend is asked for, and nothing is compiled before a call
needs it. All imports are absolute: `cuda` is also the name of NVIDIA's own package.
"""
