//! Frozen vectors: what the decoder makes of corrections that were written once.
//!
//! A vector that fails means that stored content cannot be rebuilt. The decoder has to be mended, never the vector.

use std::collections::VecDeque;
use std::io::Read;

use super::Rebuilder;
use super::made_streams_tests::text;

/// Writer, bytes before and after the text, corrections, start of the BLAKE3 of the stream.
type Vector = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Streams that real programs made of 90,000 bytes of text: GNU gzip 1.12, zlib 1.2.13, pigz 2.6, Go 1.19,
/// miniz_oxide 0.8.9, zlib-rs 0.6.7.
const WRITERS: &[Vector] = &[
    (
        "GNU gzip -1",
        "1f8b0800000000000403",
        "2a5fa15c905f0100",
        "4457fbf08bc3c07b1f3f201310",
        "d08db2a046f51eb3b46c86307d71eb76",
    ),
    (
        "GNU gzip -2",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "4457fff18bc3c07b1f3f201310",
        "6f0f55af2c2a207e33f9b3f8ba503292",
    ),
    (
        "GNU gzip -3",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "445803f28bc3c07b1f3f201310",
        "37dedb37949759a67624813b6c47b4a1",
    ),
    (
        "GNU gzip -4",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "445807f38bc3c07b1f3f201310",
        "ecc6ee127ddc5068c6b185a5df1c4a8b",
    ),
    (
        "GNU gzip -5",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "44580bf48bc3c07b1f3f201310",
        "8e856530b7326acecfedd154115b6ad5",
    ),
    ("GNU gzip -6", "1f8b0800000000000003", "2a5fa15c905f0100", "445a819f3f201310", "f0ca0c91b2df591844ef1037f798bddc"),
    (
        "GNU gzip -7",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "445813f68bc3c07b1f3f201310",
        "f34c4018bb54c21623d5d8f62323dcb4",
    ),
    (
        "GNU gzip -8",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "44581bf88bc3c07b1f3f201310",
        "559531de123c826dfab80085e9f4267c",
    ),
    (
        "GNU gzip -9",
        "1f8b0800000000000203",
        "2a5fa15c905f0100",
        "44581bf88bc3c07b1f3f201310",
        "b72fd037f2e0eae77ed5395e9f3c0eae",
    ),
    (
        "Go 1",
        "1f8b08000000000004ff",
        "2a5fa15c905f0100",
        "44587c10c510901b1f3f2084e2f92df8",
        "ef8cd992eecc9119c3b16e23456a8fd5",
    ),
    (
        "Go 2",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44588011c740dc0b1f3f2049f4",
        "9ec473acf6a6d41038dd51d6ccbd31d8",
    ),
    (
        "Go 3",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44588412867c6efb1f3f2049f4",
        "b141d89722b5ef7b895a8b7d95c1db60",
    ),
    (
        "Go 4",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44588813c5a5353b1f3f2049f4",
        "484f89b23b448b73d188f3a99655ba15",
    ),
    (
        "Go 5",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44588c14c5395a4b1f3f2049f4",
        "b8f90566eba96ab3789efdbd140544b4",
    ),
    (
        "Go 6",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44589015c4ef87db1f3f2049f4",
        "9866b0c822890da282f0c6fdf0310311",
    ),
    (
        "Go 7",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44589416c4ee077b1f3f2049f4",
        "e8c5027551e4db9deef04e4822509011",
    ),
    (
        "Go 8",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44589c18c4ecc72b1f3f2049f4",
        "6637a0ba3f439da0abdee7586c2d06f1",
    ),
    (
        "Go 9",
        "1f8b08000000000002ff",
        "2a5fa15c905f0100",
        "44589c18c4ecc72b1f3f2049f4",
        "11b5f74308316cf8db587583b9e61afc",
    ),
    (
        "Go, literals",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44593c40bbcfc07b1f3f20842100006aae326932f18eaa4ab0afc1ba73c682",
        "03e72a99035f8889646fe0a94bca29b6",
    ),
    ("miniz_oxide 2", "785e", "a3d32b88", "426318872f4f01ec7cfc804c40", "aefdb6c243300de821f04b964cf38b1b"),
    ("miniz_oxide 3", "785e", "a3d32b88", "4263288c2f8f01ec7cfc804c40", "8812815c1af6cc3ff531234508fc65c0"),
    ("miniz_oxide 4", "789c", "a3d32b88", "4263388f2f4f01ec7cfc804c40", "99f6d9fb45ba8a8e73de03fbd36f8a3f"),
    ("miniz_oxide 5", "789c", "a3d32b88", "426348942f8f01ec7cfc804c40", "bc4bd82b0cc6028f9813bea6b228c407"),
    ("miniz_oxide 6", "789c", "a3d32b88", "426358982f8f01ec7cfc804c40", "48ac37e8afd42750bfc195f184b6368e"),
    ("miniz_oxide 7", "789c", "a3d32b88", "426388a42f8f01ec7cfc804c40", "772c8625280e3140acff2ba792188045"),
    ("miniz_oxide 8", "789c", "a3d32b88", "426388a42f8f01ec7cfc804c40", "772c8625280e3140acff2ba792188045"),
    ("miniz_oxide 9", "78da", "a3d32b88", "426388a42f8f01ec7cfc804c40", "e5bb252747336237dbbe1ce5e6764f6b"),
    (
        "pigz -6 -b 32",
        "1f8b0800000000000003",
        "2a5fa15c905f0100",
        "44580ff57f7d6fab1f3f20d368459e6313c0c5ec3a972cc0f338",
        "17ef788966ecf3190ab0c5842d0e4523",
    ),
    ("zlib 1", "7801", "a3d32b88", "426007c22f0f01ec7cfc804c40", "45c750dbaef9bcb812d3b57bf103175a"),
    ("zlib 2", "785e", "a3d32b88", "426017c62f0f01ec7cfc804c40", "c59beaef0ec8c6e0e22cb83a450aad3a"),
    ("zlib 3", "785e", "a3d32b88", "426027ca2f0f01ec7cfc804c40", "2fc09eb2ad33551ffc662a40c099390f"),
    ("zlib 4", "785e", "a3d32b88", "426037ce2f0f01ec7cfc804c40", "2d704bd88f22ef8667926baba73d2e00"),
    ("zlib 5", "785e", "a3d32b88", "426047d22f0f01ec7cfc804c40", "7dc0b8068fd120cd8da85e3e2145edc9"),
    ("zlib 6, filtered", "789c", "a3d32b88", "426058163f0f01ec7cfc804c40", "c38781ecb7c9eed473abd0bc7985d414"),
    ("zlib 6, memory level 9", "789c", "a3d32b88", "426a1e7cfc804c40", "2dad2b69877f3b11b56cef02a7d20413"),
    ("zlib 6, window of 12 bits", "4889", "a3d32b88", "426057ca2c0f01ec7cfc804c40", "3e116522d2589768894b1ecd25c6c237"),
    ("zlib 6", "789c", "a3d32b88", "426a1e7cfc804c40", "2dad2b69877f3b11b56cef02a7d20413"),
    ("zlib 7", "78da", "a3d32b88", "426067da2f0f01ec7cfc804c40", "bb3af0ed53c92e56aa0830d672909042"),
    ("zlib 8", "78da", "a3d32b88", "426087e22f0f01ec7cfc804c40", "47cfbc040145975890c901e61eb3bf1e"),
    ("zlib 9, filtered", "78da", "a3d32b88", "426088223f0f01ec7cfc804c40", "d57eecef1a5bda411a24bc9033f8e2a1"),
    ("zlib 9, memory level 9", "78da", "a3d32b88", "426087e22f0f01ec7cfc804c40", "47cfbc040145975890c901e61eb3bf1e"),
    ("zlib 9, window of 12 bits", "48c7", "a3d32b88", "426057ca2c0f01ec7cfc804c40", "891b93c70d4e2971df2efbf8d606a688"),
    ("zlib 9", "78da", "a3d32b88", "426087e22f0f01ec7cfc804c40", "47cfbc040145975890c901e61eb3bf1e"),
    ("zlib, literals", "7801", "a3d32b88", "426509022f0f01ec7cfc834a7726", "73ebd11f802be6c86d1f2b7d0550a25e"),
    ("zlib, runs", "7801", "a3d32b88", "426509022f0f01ec7cfc834a7726", "73ebd11f802be6c86d1f2b7d0550a25e"),
    (
        "zlib-rs 1",
        "1f8b08000000000004ff",
        "2a5fa15c905f0100",
        "44583c008862a86b1f3f204cbe7ee7c865ce8d9aac225580",
        "3894a5df191347e08f673daec71c336a",
    ),
    (
        "zlib-rs 2",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445840018bc3c07b1f3f201310",
        "9a019f2957f4b10448c9a633e6366e48",
    ),
    (
        "zlib-rs 3",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445844028bc3c07b1f3f201310",
        "9677c1bb5bae4cd3b2101c821f4b0dd1",
    ),
    (
        "zlib-rs 4",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445848038bc3c07b1f3f201310",
        "68e77916193c13b12c69f0b706904c65",
    ),
    (
        "zlib-rs 5",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "44584c048bc3c07b1f3f201310",
        "73fa04f42ab7191fb555b70bc474cd26",
    ),
    (
        "zlib-rs 6",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445850058bc3c07b1f3f201310",
        "1cbb71b04fc7e69eb8f0a38e44a80c06",
    ),
    (
        "zlib-rs 7",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445854068bc3c07b1f3f201310",
        "9ec9d02d6bf2260b5ec85a1501982b8d",
    ),
    (
        "zlib-rs 8",
        "1f8b08000000000000ff",
        "2a5fa15c905f0100",
        "445858078bc3c07b1f3f201310",
        "f81880430424dd108fc6997b318db321",
    ),
    (
        "zlib-rs 9",
        "1f8b08000000000002ff",
        "2a5fa15c905f0100",
        "44585c088bc3c07b1f3f2019c92cc780",
        "4a1ec6bcc104ba9abfa032f724a70b6f",
    ),
];

/// Of each family: corrections of an image of 30,000 bytes in chunks and of a gzip member of 8,000 bytes, with
/// tokens, blocks and codes that nothing predicts, and the start of the BLAKE3 of both.
const ODD: &[(&str, &str)] = &[
    (
        "433872de70946a4566438ad9bf68bf074974baf289910486b34b5b6d5f9134bea4e3c357f693632a53b16b99a1d680447adac1601fafbae5b15f56405b5565f40d4233ea89de474cf5d201803b4565b42e45397a98cb3c7402e0032446a03b6dbf2d44154ac8890acc8d8f481f5de96a0eb3afc2d12ccb1c48b8b26864cedce390e4df98122870ada02581eb0017953ee9f8c2f48e8cf9ae5ef340",
        "6d8f038f1aa0cbead8a8ca129118287c",
    ),
    (
        "43386adc7176e95c714da51d82d2c53e8ff53e8e4c42380223e53c2b150cafb4c40b9e2582ff58d32b0f7e93b052d8ed0b8b66d2e5b68504ef3cfe328c46cd3760dfd33dfed8ec99161421aaa50d6585799f74e94e06689285b3296ccd4d3ba6144d8cc2ee607f1fca37a1188f82675acf99a361a3b1b4642c513f28e010628deaae50127d51c057bfd3a2bed93e1a6cbf6c",
        "5b0c47b78b6f06ad37b232dac3cc008a",
    ),
    (
        "433872de711cb141753ca51d82d2c53e8ff558c49f39c891283f07839d235aa052bb0d0d5a838335528308cad952d2cc5c3a24b6aaf505d8c487d962ca590df9bdbff7ced09071ed0f46ecfbd464f3cd6c19e6e34e0a832ac6f3f79b75147d8ac9a7c9fd60868e70b3624fdc19651377d54d591317cf4e8afdc1495c9859570527ce5846d46fbbc65508",
        "ad30ded843ceb877003618d46e07e5f9",
    ),
    (
        "433872de70666a6b77c774eff2d5bd6192eae15bbd46c6be0e1cdf82bfd80c8937b5338949279e99fafb4046c9af98273f156ec671acfbeef0915b6b15bb80cfd9fe618712186477166e8f62012c507b15362be5f1f8247c6b748626a6b5d326a42baa751d1ca7fb8009b7b0abf028ed3d75c5255a7c4b6a16565bee143284e1e905d540208e62445d1c",
        "ad2d480f7181c3aa93b09bf89c1e51a3",
    ),
    (
        "4338848338885c18d7dee5403b32724385438e02c5b21d7155ced4b7a08a3eec770eefaaa5c1dc9935dbeba0",
        "cb152be1c03721a2652d111e5817918d",
    ),
    (
        "4338848338885c18d7dee5403b32724385438e02c5b21d7155ced4b7a08a3eec770eefaaa5c1dc9935dbeba0",
        "cb152be1c03721a2652d111e5817918d",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hash_of(plain: &[u8], corrections: &[u8]) -> String {
    let mut stream = Vec::new();
    Rebuilder::new(plain, VecDeque::from(corrections.to_vec())).read_to_end(&mut stream).expect("a vector decodes");
    blake3::hash(&stream).to_hex()[..32].to_string()
}

#[test]
fn streams_of_real_writers_are_rebuilt() {
    let text = text(77, 90_000);
    for (writer, head, tail, corrections, hash) in WRITERS {
        let plain = [bytes(head), text.clone(), bytes(tail)].concat();
        assert_eq!(hash_of(&plain, &bytes(corrections)), *hash, "{writer}");
    }
}

#[test]
fn odd_streams_are_rebuilt() {
    for (number, (corrections, hash)) in ODD.iter().enumerate() {
        let text = text(90 + number as u64, 30_000);
        let head: &[u8] = &[0x1F, 0x8B, 8, 8, 0, 0, 0, 0, 0, 3, b'n', b'a', b'm', b'e', 0];
        let between: &[u8] = &[0x78, 0x9C];
        let plain =
            [b"....", between, &text, &[0; 4], head, &text[..8000], &[1, 2, 3, 4, 5, 6, 7, 8], b"...."].concat();
        assert_eq!(hash_of(&plain, &bytes(corrections)), *hash, "family {number}");
    }
}
