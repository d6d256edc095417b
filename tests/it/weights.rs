//! Model files made in code: weights, fine-tunes, and the files they come in.

use crate::trees::Random;

/// A tensor: name, type as safetensors names it, shape, bytes.
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn new(name: &str, dtype: &'static str, shape: &[u64], bytes: Vec<u8>) -> Self {
        Tensor { name: name.into(), dtype, shape: shape.into(), bytes }
    }
}

/// A safetensors file.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for tensor in tensors {
        let start = end;
        end += tensor.bytes.len();
        let entry = serde_json::json!({
            "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end],
        });
        header.insert(tensor.name.clone(), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.bytes.iter().copied()).collect();
    with_header(&header, &data)
}

/// A safetensors file with any header.
pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut header = header.as_bytes().to_vec();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), header.as_slice(), data].concat()
}

/// FP32 weights as training leaves them: near zero, a few far away.
pub fn weights(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    let mut uniform = move || (random.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    (0..count).map(|_| (uniform() + uniform() + uniform() + uniform()) * 0.04).collect()
}

/// The same after some training: every weight moved by about `step`.
pub fn tuned(weights: &[f32], seed: u64, step: f32) -> Vec<f32> {
    let mut random = Random(seed);
    let mut uniform = move || (random.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    weights.iter().map(|weight| weight + step * (uniform() + uniform())).collect()
}

pub fn float32(weights: &[f32]) -> Vec<u8> {
    weights.iter().flat_map(|weight| weight.to_le_bytes()).collect()
}

/// BF16, rounded to nearest, ties to even.
pub fn bfloat16(weights: &[f32]) -> Vec<u8> {
    let round = |weight: &f32| {
        let bits = weight.to_bits();
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    };
    weights.iter().flat_map(|weight| round(weight).to_le_bytes()).collect()
}

/// A BF16 model of two tensors of rows of 512 as a file, and a short one.
pub fn model(embedding: &[f32], layer: &[f32]) -> Vec<u8> {
    let (embedding, layer) = (bfloat16(embedding), bfloat16(layer));
    let rows = |bytes: &Vec<u8>| bytes.len() as u64 / 1024;
    let (embedding_rows, layer_rows) = (rows(&embedding), rows(&layer));
    safetensors(&[
        Tensor::new("embed.weight", "BF16", &[embedding_rows, 512], embedding),
        Tensor::new("layer.weight", "BF16", &[layer_rows, 512], layer),
        Tensor::new("layer.bias", "BF16", &[512], vec![0; 1024]),
    ])
}

/// A zip of stored members.
pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let offset = file.len() as u32;
        let mut fields = Vec::new();
        // Version, flags, method, time, date.
        fields.extend_from_slice(&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        fields.extend_from_slice(&crc32(bytes).to_le_bytes());
        fields.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        fields.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        fields.extend_from_slice(&(name.len() as u16).to_le_bytes());
        fields.extend_from_slice(&[0, 0]);
        file.extend_from_slice(b"PK\x03\x04");
        file.extend_from_slice(&fields);
        file.extend_from_slice(name.as_bytes());
        file.extend_from_slice(bytes);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&fields);
        // Comment, disk, attributes.
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let (start, count) = (file.len() as u32, members.len() as u16);
    file.extend_from_slice(&directory);
    file.extend_from_slice(b"PK\x05\x06\x00\x00\x00\x00");
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&(directory.len() as u32).to_le_bytes());
    file.extend_from_slice(&start.to_le_bytes());
    file.extend_from_slice(&[0, 0]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// A numpy file of one tensor.
pub fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    [b"\x93NUMPY\x01\x00", (header.len() as u16).to_le_bytes().as_slice(), header.as_bytes(), bytes].concat()
}

/// A GGUF file of version 3: tensors of a name, a type number, dimensions (fastest first) and bytes.
pub fn gguf(tensors: &[(&str, u32, &[u64], &[u8])]) -> Vec<u8> {
    let mut file = b"GGUF\x03\x00\x00\x00".to_vec();
    file.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
    file.extend_from_slice(&0u64.to_le_bytes());
    let mut offset = 0u64;
    for (name, kind, dimensions, bytes) in tensors {
        file.extend_from_slice(&(name.len() as u64).to_le_bytes());
        file.extend_from_slice(name.as_bytes());
        file.extend_from_slice(&(dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|dimension| file.extend_from_slice(&dimension.to_le_bytes()));
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&offset.to_le_bytes());
        offset += (bytes.len() as u64).next_multiple_of(32);
    }
    for (_, _, _, bytes) in tensors {
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend_from_slice(bytes);
    }
    file
}
