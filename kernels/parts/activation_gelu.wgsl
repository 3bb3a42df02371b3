// GELU in its tanh form, as GGML computes it; the argument is bounded because tanh overflows on some drivers.
fn activation(x: f32) -> f32 {
    let inner = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x);
    return 0.5 * x * (1.0 + tanh(clamp(inner, -15.0, 15.0)));
}
