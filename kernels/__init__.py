"""The kernels. Each is a pair: NAME.wgsl, the GPU code, and NAME.py, its contract and its NumPy reference."""
