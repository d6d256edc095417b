//! Numbers of known codes, and loops compared with what single values say, for each set of CPU features.

use super::loops::product;
use super::*;
use crate::kernel::cpu_features::with_each_subset;

fn values(count: usize) -> Vec<f32> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (next() + next() + next()) * 600.0 * next().abs()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn codes_have_the_numbers_that_the_format_defines() {
    let number = |book: Codebook, code| book.number(code);
    assert_eq!([0, 128, 255].map(|code| number(Codebook::Integers, code)), [-128.0, 0.0, 127.0]);
    assert_eq!([1, 128, 255].map(|code| number(Codebook::SignedIntegers, code)), [-127.0, 0.0, 127.0]);
    assert_eq!(number(Codebook::SignedIntegers, 0).to_bits(), 0x8000_0000);
    let bits = [0, 1, 7, 8, 15, 16, 255].map(|code| number(Codebook::NormalFloat, code).to_bits());
    assert_eq!(bits, [0xbf80_0000, 0xbf32_39b1, 0, 0x3da2_faff, 0x3f80_0000, 0, 0]);
    let fp8 = [0x01, 0x08, 0x38, 0x7e, 0xb8, 0x80].map(|code| number(Codebook::Fp8E4M3, code));
    assert_eq!(fp8, [1.0 / 512.0, 1.0 / 64.0, 1.0, 448.0, -1.0, 0.0]);
    assert!(number(Codebook::Fp8E4M3, 0x80).is_sign_negative());
    assert!(number(Codebook::Fp8E4M3, 0x7f).is_nan() && number(Codebook::Fp8E4M3, 0xff).is_nan());
}

#[test]
fn the_code_of_a_number_is_its_own_and_that_of_another_value_the_nearest() {
    for book in Codebook::ALL {
        let codes = if book == Codebook::NormalFloat { 0..16u16 } else { 0..256 };
        let numbers: Vec<f32> = codes.map(|code| book.number(code as u8)).filter(|number| !number.is_nan()).collect();
        for number in &numbers {
            assert_eq!(book.number(book.nearest(*number)).to_bits(), number.to_bits(), "{book:?} {number}");
        }
        let limits = [-1e30, -500.0, 500.0, 1e30, f32::INFINITY, 0.0, 1e-40];
        for value in values(3000).into_iter().chain(limits) {
            let distance = |number: f32| (f64::from(number) - f64::from(value)).abs();
            let least = numbers.iter().map(|number| distance(*number)).fold(f64::INFINITY, f64::min);
            assert!(distance(book.number(book.nearest(value))) <= least * (1.0 + 1e-6), "{book:?} {value}");
        }
    }
}

#[test]
fn loops_are_those_of_single_values_for_each_set_of_cpu_features() {
    let values = [values(133), vec![-0.0, 0.0, 1e-41, -3e38]].concat();
    for book in Codebook::ALL {
        let numbers = book.numbers();
        let expected: Vec<u8> = values.iter().map(|value| book.nearest(*value * 0.37)).collect();
        let code = |at: usize| (at * 7) as u8;
        let codes: Vec<u8> = (0..values.len()).map(code).collect();
        let products: Vec<u8> = codes.iter().flat_map(|code| product(book.number(*code), -0.3)).collect();
        let mut fitted = Vec::new();
        with_each_subset(|features| {
            let mut own = vec![9; values.len()];
            nearest_codes(book, &bytes(&values), 0.37, &mut own);
            assert_eq!(own, expected, "{book:?} with {features:?}");
            let mut made = vec![0; values.len() * 4];
            multiply(book, numbers, &codes, -0.3, &mut made);
            assert_eq!(made, products, "{book:?} with {features:?}");
            let scale = fitted_scale(numbers, &bytes(&values), &expected).to_bits();
            let bounds = scale_bounds(numbers, &bytes(&values), &expected, 1 << 44, 0.0).map(f64::to_bits);
            fitted.push((scale, bounds, greatest_magnitude(&bytes(&values))));
        });
        assert!(fitted.iter().all(|found| *found == fitted[0]), "{book:?}");
        assert_eq!(fitted[0].2, 3e38f32.to_bits());
    }
    let mut made = [0; 8];
    multiply(Codebook::Fp8E4M3, Codebook::Fp8E4M3.numbers(), &[0x7f, 0x00], f32::INFINITY, &mut made);
    assert_eq!(made, [0, 0, 0xc0, 0x7f, 0, 0, 0xc0, 0x7f]);
}

#[test]
fn bounds_contain_the_scale_and_little_else() {
    let numbers = Codebook::Integers.numbers();
    let codes: Vec<u8> = (0..128u32).map(|at| (at * 37 % 15 + 121) as u8).collect();
    let mut products = vec![0; 512];
    multiply(Codebook::Integers, numbers, &codes, 0.0123, &mut products);
    let [least, greatest] = scale_bounds(numbers, &products, &codes, 1 << 28, 0.0);
    assert!(least <= f64::from(0.0123f32) && f64::from(0.0123f32) <= greatest, "{least} {greatest}");
    assert!(greatest / least < 1.000_000_2);
    assert!((fitted_scale(numbers, &products, &codes) / 0.0123 - 1.0).abs() < 1e-7);
}
