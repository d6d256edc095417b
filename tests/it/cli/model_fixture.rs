//! A base, fine-tunes of it, and a home in which they are stored.

use super::fixture::Home;
use crate::normal::Normal;
use crate::weights::{Tensor, bfloat16, float32, safetensors};

pub const EMBED: &[u64] = &[512, 256];
pub const LAYER: &[u64] = &[768, 256];
pub const LAYER_VALUES: usize = 768 * 256;

pub struct Weights {
    pub embed: Vec<f32>,
    pub layer: Vec<f32>,
}

impl Weights {
    pub fn base() -> Self {
        let mut normal = Normal::new(1);
        Weights { embed: normal.weights(512 * 256, 0.04), layer: normal.weights(LAYER_VALUES, 0.03) }
    }

    pub fn tuned(&self, seed: u64) -> Self {
        let mut normal = Normal::new(seed);
        Weights { embed: self.embed.clone(), layer: normal.tuned(&self.layer, 0.0004) }
    }

    pub fn bf16(&self) -> Vec<u8> {
        safetensors(&[
            Tensor::new("embed", "BF16", EMBED, bfloat16(&self.embed)),
            Tensor::new("layer.weight", "BF16", LAYER, bfloat16(&self.layer)),
            Tensor::new("bias", "BF16", &[16], bfloat16(&self.layer[..16])),
        ])
    }

    pub fn f32(&self) -> Vec<u8> {
        safetensors(&[
            Tensor::new("embed", "F32", EMBED, float32(&self.embed)),
            Tensor::new("layer.weight", "F32", LAYER, float32(&self.layer)),
        ])
    }
}

/// A base, a fine-tune, one of that, and something else, stored one after another.
pub fn stored() -> Home {
    let home = Home::new();
    let base = Weights::base();
    let tuned = base.tuned(2);
    home.write("m/letter.txt", &b"no model at all\n".repeat(9000));
    let models = [("a-base", base.bf16()), ("b-tune", tuned.bf16()), ("c-tune-again", tuned.tuned(3).bf16())];
    for (directory, bytes) in models {
        home.write(&format!("m/{directory}/model.safetensors"), &bytes);
        home.backup(&["m"]);
    }
    home
}
