//! Slices of every type of element, and between types.

use crate::input::write;
use crate::program::Place;
use crate::slices::stored;
use crate::trees::Random;
use crate::weights::*;

/// Values of a row.
const ROW: usize = 512;

/// Writes a model of these tensors and backs it up. Bytes that it takes, and of its file.
fn model(place: &Place, name: &str, dtype: &'static str, tensors: &[(&str, Vec<u8>)]) -> (u64, u64) {
    let of =
        |(name, bytes): &(&str, Vec<u8>)| Tensor::new(name, dtype, &[bytes.len() as u64 / width(dtype)], bytes.clone());
    opaque(place, &format!("{name}/model.safetensors"), &safetensors(&tensors.iter().map(of).collect::<Vec<_>>()))
}

/// The same for a file of its own directory.
fn opaque(place: &Place, file: &str, bytes: &[u8]) -> (u64, u64) {
    let path = place.path(file);
    write(path.clone(), bytes);
    (stored(place, path.parent().unwrap()), bytes.len() as u64)
}

fn width(dtype: &str) -> u64 {
    match dtype {
        "F64" | "I64" => 8,
        "F32" | "I32" => 4,
        "U8" => 1,
        _ => 2,
    }
}

/// FP64 values near these, each with low bits of its own.
fn float64(weights: &[f32]) -> Vec<u8> {
    let low = |bits: u32| Random(u64::from(bits)).next() >> 35;
    weights.iter().flat_map(|weight| (f64::from(*weight).to_bits() | low(weight.to_bits())).to_le_bytes()).collect()
}

#[test]
fn words_called_integers_are_slices_of_weights() {
    let (embed, layer) = (weights(1, 1100 * ROW), weights(2, 700 * ROW));
    let flat = [embed[300 * ROW..].to_vec(), layer.clone()].concat();
    type Encode = fn(&[f32]) -> Vec<u8>;
    let types: [(&str, &str, Encode); 4] =
        [("BF16", "U16", bfloat16), ("BF16", "I16", bfloat16), ("U16", "BF16", bfloat16), ("F32", "I32", float32)];
    for (of, called, encode) in types {
        let place = Place::with_repository();
        model(&place, "base", of, &[("embed", encode(&embed)), ("layer", encode(&layer))]);
        let (taken, bytes) = model(&place, "flat", called, &[("flat_param", encode(&flat))]);
        assert!(taken * 50 <= bytes, "{called} of {of}: {taken} of {bytes}");
    }
}

#[test]
fn integers_with_small_values_are_still_slices() {
    let mut random = Random(5);
    let rows: Vec<u8> = (0..300 * ROW).flat_map(|_| (random.next() >> 38).to_le_bytes()).collect();
    let place = Place::with_repository();
    let whole = model(&place, "base", "I64", &[("rows", rows.clone())]).0;
    let (taken, bytes) = model(&place, "part", "I64", &[("part", rows[8 * 777..].to_vec())]);
    assert!(whole * 3 > bytes && taken * 50 <= bytes, "{taken} of {bytes}, {whole}");
}

#[test]
fn double_weights_in_an_opaque_file_are_slices_of_a_tensor() {
    let values = float64(&weights(1, 1000 * ROW));
    for is_opaque_first in [false, true] {
        let place = Place::with_repository();
        let taken = [is_opaque_first, !is_opaque_first].map(|is_opaque| match is_opaque {
            true => opaque(&place, "opaque/weights.bin", &[b"an opaque header".to_vec(), values.clone()].concat()).0,
            false => model(&place, "model", "F64", &[("w", values.clone())]).0,
        });
        assert!(taken[1] * 20 <= taken[0], "{taken:?}, opaque first: {is_opaque_first}");
    }
}

#[test]
fn a_file_with_a_part_of_each_tensor_finds_the_next_one_in_its_middle() {
    const ROWS: usize = 240;
    let tensors: Vec<Vec<f32>> = (0..20).map(|number| weights(300 + number, ROWS * 512)).collect();
    let tune = |values: &Vec<f32>| tuned(values, 400, 0.0004);
    let tunes: Vec<Vec<f32>> = tensors.iter().map(tune).collect();
    let lower_halves = |tensors: &[Vec<f32>]| -> Vec<u8> {
        tensors.iter().flat_map(|values| bfloat16(&values[ROWS / 2 * 512..])).collect()
    };
    let named: Vec<(String, Vec<u8>)> =
        tensors.iter().enumerate().map(|(at, values)| (format!("{at:02}"), bfloat16(values))).collect();
    let named: Vec<(&str, Vec<u8>)> = named.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let taken = |tensors: &[Vec<f32>]| {
        let place = Place::with_repository();
        model(&place, "base", "BF16", &named);
        opaque(&place, "half/model.bin", &lower_halves(tensors))
    };
    let (exact, alike) = (taken(&tensors), taken(&tunes));
    for ((stored, raw), thousandths) in [(exact, 3), (alike, 240)] {
        assert!(stored * 1000 < raw * thousandths, "{exact:?}, {alike:?}");
    }
}

#[test]
fn a_base_of_a_type_without_a_derivation_hides_none_that_has_one() {
    let (place, alone) = (Place::with_repository(), Place::with_repository());
    let values = weights(1, 1024 * ROW);
    model(&place, "single", "F32", &[("master", float32(&values))]);
    // Words near most of each block: one of 12 differs in its last bit.
    let near = |number: usize| {
        let mut words = bfloat16(&values[number * 512 * ROW..][..480 * ROW]);
        words.iter_mut().step_by(24).for_each(|byte| *byte ^= 1);
        words
    };
    model(&place, "near", "U16", &[("a", near(0)), ("b", near(1))]);
    let words = bfloat16(&values);
    let (taken, _) = model(&place, "words", "U16", &[("w", words.clone())]);
    let (whole, _) = model(&alone, "words", "U16", &[("w", words)]);
    assert!(taken * 10 <= whole * 6, "{taken} of {whole}");
}

#[test]
fn narrow_columns_of_a_matrix_are_copied() {
    let values = weights(1, 2048 * ROW);
    let place = Place::with_repository();
    model(&place, "base", "BF16", &[("matrix", bfloat16(&values))]);
    for (columns, percent) in [(256, 6), (128, 10), (64, 20)] {
        let shard: Vec<f32> = values.chunks(ROW).flat_map(|row| row[ROW / 2..][..columns].to_vec()).collect();
        let (taken, bytes) = model(&place, &format!("columns-{columns}"), "BF16", &[("shard", bfloat16(&shard))]);
        assert!(taken * 100 <= bytes * percent, "{columns} columns: {taken} of {bytes}");
    }
}

#[test]
fn columns_of_a_fine_tune_are_deltas_to_ranges_of_rows() {
    let values = weights(1, 2048 * ROW);
    let tune = tuned(&values, 5, 0.0004);
    let columns = |from: usize, count: usize| -> Vec<u8> {
        bfloat16(&tune.chunks(ROW).flat_map(|row| row[from..from + count].to_vec()).collect::<Vec<f32>>())
    };
    let shard = |place: &Place, from: usize, count: usize| {
        let tensor = Tensor::new("shard", "BF16", &[2048, count as u64], columns(from, count));
        opaque(place, &format!("columns-{from}-{count}/model.safetensors"), &safetensors(&[tensor]))
    };
    let (place, stored, alone) = (Place::with_repository(), Place::with_repository(), Place::with_repository());
    for place in [&place, &stored] {
        model(place, "base", "BF16", &[("matrix", bfloat16(&values))]);
    }
    model(&stored, "tune", "BF16", &[("matrix", bfloat16(&tune))]);
    for (from, count, percent) in [(256, 256, 6), (0, 128, 10), (100, 200, 8)] {
        let (taken, bytes) = shard(&place, from, count);
        let whole = shard(&alone, from, count).0;
        assert!(taken * 100 <= whole * 60, "{count} columns: {taken} of {whole}");
        let taken = shard(&stored, from, count).0;
        assert!(taken * 100 <= bytes * percent, "{count} columns of a stored fine-tune: {taken} of {bytes}");
    }
}

/// FP16, rounded towards zero; the smallest values are zero.
fn float16(weights: &[f32]) -> Vec<u8> {
    let half = |weight: &f32| {
        let bits = weight.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let exponent = (bits >> 23 & 0xff).saturating_sub(112);
        if exponent == 0 { sign } else { sign | (exponent << 10 | bits >> 13 & 0x3ff) as u16 }
    };
    weights.iter().flat_map(|weight| half(weight).to_le_bytes()).collect()
}

/// Blocks of 32 values: a scale and codes of 8 bits.
fn quantised(weights: &[f32]) -> Vec<u8> {
    let blocks = weights.chunks(32).flat_map(|block| {
        let scale = block.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
        let codes = block.iter().map(move |value| (value / scale).round() as i8 as u8);
        float16(&[scale * 64.0]).into_iter().chain(codes).collect::<Vec<u8>>()
    });
    blocks.collect()
}

#[test]
fn quantised_weights_in_an_opaque_file_and_in_a_tensor_are_stored_once() {
    let bytes = quantised(&weights(1, 2000 * ROW));
    for is_opaque_first in [false, true] {
        let place = Place::with_repository();
        let taken = [is_opaque_first, !is_opaque_first].map(|is_opaque| match is_opaque {
            true => opaque(&place, "opaque/weights.bin", &[b"an opaque header".to_vec(), bytes.clone()].concat()).0,
            false => model(&place, "model", "U8", &[("w", bytes.clone())]).0,
        });
        assert!(taken[1] * 20 <= taken[0], "{taken:?}, opaque first: {is_opaque_first}");
    }
}

#[test]
fn widened_weights_in_an_opaque_file_follow_from_the_narrow_ones() {
    let narrow = bfloat16(&weights(1, 1600 * ROW));
    let wide: Vec<u8> = narrow.as_chunks::<2>().0.iter().flat_map(|value| [0, 0, value[0], value[1]]).collect();
    let place = Place::with_repository();
    model(&place, "base", "BF16", &[("w", narrow)]);
    let (taken, bytes) = opaque(&place, "opaque/weights.bin", &[b"odd header".to_vec(), wide].concat());
    assert!(taken * 20 <= bytes, "{taken} of {bytes}");
}
