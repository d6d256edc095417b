//! Codes of known quotients, and loops compared with what single values say, for each set of CPU features.

use super::*;
use crate::kernel::cpu_features::with_each_subset;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn known_quotients_have_their_codes() {
    let codes = |code, quotients: [f32; 8]| quotients.map(|quotient| code_of(code, quotient));
    let quotients = [0.5, 1.5, -0.5, -1.5, 1e9, -1e9, f32::NAN, -0.0];
    assert_eq!(codes(ScaledCode::Int8, quotients), [0, 2, 0, 254, 127, 128, 0, 0]);
    assert_eq!(codes(ScaledCode::Int4, quotients), [8, 10, 8, 6, 15, 0, 8, 8]);
    assert_eq!(codes(ScaledCode::NormalFloat, quotients), [12, 15, 2, 0, 15, 0, 7, 7]);
    assert_eq!(codes(ScaledCode::E4m3, quotients), [0x30, 0x3c, 0xb0, 0xbc, 0x7e, 0xfe, 0, 0x80]);
    assert_eq!(codes(ScaledCode::E5m2, quotients), [0x38, 0x3e, 0xb8, 0xbe, 0x7b, 0xfb, 0, 0x80]);
}

#[test]
fn ranks_follow_the_numbers_of_codes() {
    for code in ScaledCode::ALL {
        let codes = 0..if code.bits() == 4 { 16u16 } else { 256 };
        let mut finite: Vec<u8> = codes.map(|byte| byte as u8).filter(|byte| code.value(*byte).is_finite()).collect();
        finite.sort_by_key(|byte| rank(code, *byte));
        for pair in finite.windows(2) {
            let [one, other] = [code.value(pair[0]), code.value(pair[1])];
            assert!(one < other || one == 0.0 && one.is_sign_negative() && other == 0.0, "{code:?} {one} {other}");
        }
        for byte in finite {
            assert_eq!(code_of(code, code.value(byte)), byte, "{code:?}");
        }
    }
}

#[test]
fn loops_are_those_of_single_values_for_each_set_of_cpu_features() {
    let mut values: Vec<f32> = (0..211).map(|at| ((at * 7919) % 1009) as f32 * 0.13 - 60.0).collect();
    values.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-41, -1e-41, -0.0, f32::MAX]);
    let raw = bytes(&values);
    let greatest =
        values.iter().filter(|value| !value.is_nan()).fold(0.5f32, |greatest, value| greatest.max(value.abs()));
    with_each_subset(|_| {
        for len in [0, 1, 15, 16, 17, 31, 33, values.len()] {
            for code in ScaledCode::ALL {
                for rounding in QuotientRounding::ALL {
                    for scale in [0.37, -2.0, 1e-39, 0.0, f32::NAN, f32::INFINITY] {
                        let mut made = vec![9; len];
                        scaled_codes(code, rounding, &raw, scale, &mut made);
                        for (value, made) in values.iter().zip(made) {
                            let used = if scale == 0.0 || !scale.is_finite() { 1.0 } else { scale };
                            let quotient = match rounding {
                                QuotientRounding::Inverse => value * (1.0 / used),
                                QuotientRounding::Fp32 => value / used,
                                QuotientRounding::Bf16 => {
                                    f32::from_bits(FloatFormat::Bf16.narrowed((value / used).to_bits()) << 16)
                                }
                                QuotientRounding::Fp16 => f32::from_bits(
                                    FloatFormat::Fp16.widened(FloatFormat::Fp16.narrowed((value / used).to_bits())),
                                ),
                            };
                            assert_eq!(made, code_of(code, quotient), "{code:?} {rounding:?} {value} {scale}");
                        }
                    }
                }
            }
            assert_eq!(greatest_value(&raw, 0.5), greatest);
            assert_eq!(greatest_value(&bytes(&[0.25; 3]), 0.5), 0.5);
        }
    });
}
