"""cera_py: a minimal LLM decode engine in Python on WebGPU."""
