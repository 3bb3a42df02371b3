// rope.wgsl without QK-norm. rope_norm.wgsl: with it.

fn normalise_row(is_query: bool, thread: u32) {}
