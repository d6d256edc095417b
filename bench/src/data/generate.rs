//! Data generated from a seed: the same bytes for the same parameters on every machine.

use std::path::Path;

use fhrd::error::Result;
use serde::{Deserialize, Serialize};

use super::image::GeneratedImage;
use super::model::GeneratedFamily;
use super::sweep::GeneratedSweep;
use super::text::GeneratedText;
use super::trees::GeneratedTrees;

/// Data to generate. Each part goes to a directory of its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// Seed of all random numbers.
    pub seed: u64,
    /// A family of models, in `models`.
    pub models: Option<GeneratedFamily>,
    /// Versions of text, in `text`.
    pub text: Option<GeneratedText>,
    /// Versions of a disk image, in `images`.
    pub images: Option<GeneratedImage>,
    /// Checkpoints of runs with a frozen backbone, in `sweep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<GeneratedSweep>,
    /// Checkpoints of boosted trees, in `trees`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<GeneratedTrees>,
}

impl Generate {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let faults = [
            self.models.as_ref().and_then(GeneratedFamily::fault),
            self.text.as_ref().and_then(GeneratedText::fault),
            self.images.as_ref().and_then(GeneratedImage::fault),
            self.sweep.as_ref().and_then(GeneratedSweep::fault),
            self.trees.as_ref().and_then(GeneratedTrees::fault),
        ];
        let parts = [self.models.is_some(), self.text.is_some(), self.images.is_some()];
        let is_empty = !parts.contains(&true) && self.sweep.is_none() && self.trees.is_none();
        let nothing = "`generate` needs at least one of `models`, `text`, `images`, `sweep` and `trees`";
        faults.into_iter().flatten().next().or(is_empty.then_some(nothing))
    }

    /// Writes everything below `directory`.
    ///
    /// # Errors
    /// [`fhrd::error::Error::Io`].
    pub fn write(&self, directory: &Path) -> Result<()> {
        if let Some(models) = &self.models {
            models.write(self.seed, &directory.join("models"))?;
        }
        if let Some(text) = &self.text {
            text.write(self.seed, &directory.join("text"))?;
        }
        if let Some(images) = &self.images {
            images.write(self.seed, &directory.join("images"))?;
        }
        if let Some(sweep) = &self.sweep {
            sweep.write(self.seed, &directory.join("sweep"))?;
        }
        match &self.trees {
            Some(trees) => trees.write(self.seed, &directory.join("trees")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::files_below;
    use super::*;

    const SMALL: &str = r#"
        seed = 1
        models = { layers = 1, hidden = 16, vocabulary = 40, fine_tunes = 2 }
        text = { files = 3, file_bytes = "2 KiB", versions = 3, files_edited = 0.5 }
        images = { bytes = "512 KiB", versions = 2, moved = 0.1 }
    "#;

    fn made(text: &str) -> (tempfile::TempDir, Vec<(String, Vec<u8>)>) {
        let directory = tempfile::tempdir().unwrap();
        let generate: Generate = toml::from_str(text).unwrap();
        assert_eq!(generate.fault(), None);
        generate.write(directory.path()).unwrap();
        let files = files_below(directory.path()).unwrap();
        let named = |path: &std::path::PathBuf| {
            let name = path.strip_prefix(directory.path()).unwrap().display().to_string();
            (name, std::fs::read(path).unwrap())
        };
        let files = files.iter().map(named).collect();
        (directory, files)
    }

    #[test]
    fn a_seed_fixes_every_byte() {
        let (_first, files) = made(SMALL);
        let mut hasher = blake3::Hasher::new();
        files.iter().for_each(|(name, bytes)| {
            hasher.update(name.as_bytes()).update(bytes);
        });
        let digest = hasher.finalize().to_hex();
        assert_eq!(&digest[..16], "21b880c7bd46c302", "the generator's output has changed: {} files", files.len());
        let (_second, others) = made(&SMALL.replace("seed = 1", "seed = 2"));
        assert!(files.iter().zip(&others).all(|(a, b)| a.0 == b.0 && (a.1 != b.1 || a.0.ends_with(".md"))));
    }

    #[test]
    fn fine_tunes_versions_and_images_resemble_their_predecessors() {
        let (directory, files) = made(SMALL);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "images/image-00.img",
            "images/image-01.img",
            "models/base/model.safetensors",
            "models/fine-tune-00/README.md",
            "models/fine-tune-00/model.safetensors",
            "models/fine-tune-01/README.md",
            "models/fine-tune-01/model.safetensors",
            "text/version-00/file-0000.txt",
        ];
        assert_eq!(names[..8], expected);
        let bytes = |name: &str| &files.iter().find(|file| file.0 == name).unwrap().1;
        let (base, tune) = (bytes("models/base/model.safetensors"), bytes("models/fine-tune-00/model.safetensors"));
        let parsed = safetensors::SafeTensors::deserialize(base).unwrap();
        assert_eq!((parsed.len(), parsed.tensor("model.embed_tokens.weight").unwrap().shape()), (10, &[40, 16][..]));
        let same = base.iter().zip(tune).filter(|(a, b)| a == b).count() as f64 / base.len() as f64;
        assert!(base.len() == tune.len() && (0.5..1.0).contains(&same), "{same}");
        let (first, second) = (bytes("images/image-00.img"), bytes("images/image-01.img"));
        let blocks = first.chunks(4096).zip(second.chunks(4096));
        let same = blocks.filter(|(a, b)| a == b).count();
        assert!((96..128).contains(&same), "{same} of 128 blocks are unchanged");
        let text = |version: u32| {
            std::fs::read_to_string(directory.path().join(format!("text/version-0{version}/file-0001.txt")))
        };
        assert!(text(0).unwrap().len() >= 2048 && text(0).unwrap().lines().count() > 20);
    }

    #[test]
    fn checkpoints_share_the_backbone_and_grown_models_their_trees() {
        let (_directory, files) = made(
            "seed = 3\nsweep = { runs = 2, epochs = 2, tensors = 3, backbone_values = 100, head_values = 7 }\n\
            trees = { checkpoints = 2, trees = 4, added = 2, nodes = 5 }\n",
        );
        let parsed: Vec<_> = files.iter().map(|file| safetensors::SafeTensors::deserialize(&file.1).unwrap()).collect();
        let names: Vec<&str> = files.iter().map(|file| file.0.as_str()).collect();
        assert_eq!((names[1], names[4]), ("sweep/run-00-epoch-001.safetensors", "trees/trees-000004.safetensors"));
        let data = |file: usize, name: &str| parsed[file].tensor(name).unwrap().data().to_vec();
        assert_eq!((data(0, "layer.1.weight"), data(0, "layer.2.weight").len()), (data(3, "layer.1.weight"), 136));
        assert!(data(0, "fc.weight") != data(1, "fc.weight") && data(0, "fc.weight") != data(2, "fc.weight"));
        assert_eq!((parsed[4].len(), parsed[5].len()), (12, 18));
        assert_eq!(data(4, "tree_000003_values"), data(5, "tree_000003_values"));
        for wrong in [
            "sweep = { runs = 0, epochs = 1, tensors = 1, backbone_values = 1, head_values = 1 }",
            "trees = { checkpoints = 1, trees = 1, added = 0, nodes = 0 }",
        ] {
            assert!(toml::from_str::<Generate>(&format!("seed = 1\n{wrong}")).unwrap().fault().is_some(), "{wrong}");
        }
    }

    #[test]
    fn invalid_parameters_are_named() {
        for (from, to, key) in [
            ("hidden = 16", "hidden = 0", "hidden"),
            ("fine_tunes = 2", "fine_tunes = 2, sigma_delta = [-1.0]", "sigma_delta"),
            ("fine_tunes = 2", "fine_tunes = 2, sigma_weight = [0.2, 0.1]", "sigma_weight"),
            ("files = 3", "files = 0", "files"),
            ("files_edited = 0.5", "files_edited = 1.5", "files_edited"),
            ("moved = 0.1", "moved = -0.1", "moved"),
            ("\"512 KiB\"", "\"1 KiB\"", "block"),
        ] {
            let generate: Generate = toml::from_str(&SMALL.replace(from, to)).unwrap();
            assert!(generate.fault().is_some_and(|fault| fault.contains(key)), "{key}: {:?}", generate.fault());
        }
        assert!(toml::from_str::<Generate>("seed = 1").unwrap().fault().is_some());
    }
}
