"""GGML's tensor types: one pair a type, TYPE.py (repacking, NumPy dequantisation) and TYPE.wgsl (the dot product)."""
