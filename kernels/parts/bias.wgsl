// The bias of a linear layer. Expects OUT_AT where several layers share one output.

@group(0) @binding(auto) var<storage, read> bias: array<f32>;           // [rows of the whole layer]

fn bias_of(row: u32) -> f32 {
    return bias[OUT_AT + row];
}
