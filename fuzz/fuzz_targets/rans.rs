//! Decodes any bytes as a frequency table, contexts and an encoding: all loops agree.

#![no_main]

use fhrd::codec::entropy::frequency_table;
use fhrd::kernel::counts::count;
use fhrd::kernel::cpu_features::CpuFeatures;
use fhrd::kernel::rans::{self, FrequencyTable};
use fhrd::wire::WireReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u8, bool, &[u8])| {
    let (len, bits, has_contexts, bytes) = input;
    let bits = rans::BITS_MIN + u32::from(bits) % (rans::BITS_MAX - rans::BITS_MIN + 1);
    let mut reader = WireReader::new("frequency table", 0, bytes);
    let Ok(table) = frequency_table::read(&mut reader, bits) else { return };
    let tables = [FrequencyTable::of_counts(&count(bytes), bits), table];
    let contexts: Vec<u8> = (0..len).map(|at| (at % 3) as u8).collect();
    let contexts = if has_contexts { &contexts[..] } else { &[] };
    let payload = reader.bytes(reader.remaining()).expect("the rest");
    let mut expected = vec![0; usize::from(len)];
    let is_good = rans::decode_with(CpuFeatures::empty(), payload, contexts, &tables, &mut expected);
    for features in CpuFeatures::subsets() {
        let mut out = vec![0; usize::from(len)];
        assert_eq!(rans::decode_with(features, payload, contexts, &tables, &mut out), is_good);
        assert!(!is_good || out == expected);
    }
});
