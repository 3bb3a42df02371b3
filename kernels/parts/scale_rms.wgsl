// The input of a linear layer is x * weight of an RMSNorm; what is left of the norm is one factor for the token.
// emit_normed.wgsl left the squares of x. Expects N_NORM (values of x), N_SQUARES, EPS, LANES.

@group(0) @binding(auto) var<storage, read> squares: array<f32>;        // [N_SQUARES] partial sums

fn input_squares(lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < N_SQUARES; i += LANES) {
        sum += squares[i];
    }
    return sum;
}

fn input_scale(squares: f32, thread: u32) -> f32 {
    return 1.0 / sqrt(team_sum(vec4<f32>(squares, 0.0, 0.0, 0.0), thread).x / f32(N_NORM) + EPS);
}
