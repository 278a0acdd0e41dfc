//! Writes `LoRA` adapters as GGUF files, valid and invalid ones. They are not trained.

use std::path::PathBuf;

use tempfile::TempDir;

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Value {
    Text(&'static str),
    Float(f32),
    Number(u32),
    Numbers(&'static [u32]),
}

/// A tensor with its shape; the fastest dimension first.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    /// GGUF's type number: 0 is F32, the only one with values written.
    pub(crate) kind: u32,
    pub(crate) numbers: Vec<f32>,
}

/// An adapter that tests can modify before it is written.
#[derive(Clone)]
pub(crate) struct Adapter {
    pub(crate) values: Vec<(&'static str, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

/// The effect of an adapter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The output changes.
    Some,
    /// None: one of the two halves is 0, as before training.
    Zero,
}

impl Adapter {
    /// For queries and values of nano's weights (5 layers, 192 dimensions), with rank 2.
    pub(crate) fn of_nano(change: Change) -> Self {
        Self::new(5, 192, change)
    }

    /// For queries and values of the tiny model.
    pub(crate) fn of_tiny(change: Change) -> Self {
        let mut adapter = Self::new(2, 64, change);
        // Its values have two heads of 16 dimensions.
        for tensor in &mut adapter.tensors {
            if tensor.name.ends_with("attn_v.weight.lora_b") {
                tensor.shape = vec![2, 32];
                tensor.numbers.truncate(64);
            }
        }
        adapter
    }

    fn new(layers: u32, dimensions: u64, change: Change) -> Self {
        const RANK: u64 = 2;
        let mut dice = Rng(1);
        let mut tensors = Vec::new();
        for layer in 0..layers {
            for part in ["attn_q", "attn_v"] {
                for (half, shape) in [("lora_a", [dimensions, RANK]), ("lora_b", [RANK, dimensions])] {
                    let is_zero = change == Change::Zero && half == "lora_b";
                    let numbers = (0..shape[0] * shape[1]).map(|_| if is_zero { 0.0 } else { dice.next() });
                    let (name, numbers) = (format!("blk.{layer}.{part}.weight.{half}"), numbers.collect());
                    tensors.push(Tensor { name, shape: shape.to_vec(), kind: 0, numbers });
                }
            }
        }
        let values = vec![
            ("general.type", Value::Text("adapter")),
            ("general.architecture", Value::Text("qwen2")),
            ("adapter.type", Value::Text("lora")),
            ("adapter.lora.alpha", Value::Float(16.0)),
        ];
        Self { values, tensors }
    }

    /// Sets a metadata value; `None` removes it.
    pub(crate) fn with(mut self, key: &'static str, value: Option<Value>) -> Self {
        self.values.retain(|(name, _)| *name != key);
        self.values.extend(value.map(|value| (key, value)));
        self
    }

    /// Changes the first tensor with this name.
    pub(crate) fn with_tensor(mut self, name: &str, change: impl FnOnce(&mut Tensor)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        const ALIGNMENT: usize = 32;
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            put_text(&mut bytes, key);
            value.put(&mut bytes);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_text(&mut bytes, &tensor.name);
            bytes.extend(u32::try_from(tensor.shape.len()).unwrap().to_le_bytes());
            tensor.shape.iter().for_each(|dimension| bytes.extend(dimension.to_le_bytes()));
            bytes.extend(tensor.kind.to_le_bytes());
            bytes.extend((offset as u64).to_le_bytes());
            offset += (tensor.numbers.len() * 4).next_multiple_of(ALIGNMENT);
        }
        for tensor in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            tensor.numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    /// Writes the adapter into a folder.
    pub(crate) fn write(&self, folder: &TempDir, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

impl Value {
    fn put(&self, bytes: &mut Vec<u8>) {
        let mut kind = |kind: u32| bytes.extend(kind.to_le_bytes());
        match self {
            Self::Number(number) => {
                kind(4);
                bytes.extend(number.to_le_bytes());
            }
            Self::Float(number) => {
                kind(6);
                bytes.extend(number.to_le_bytes());
            }
            Self::Text(text) => {
                kind(8);
                put_text(bytes, text);
            }
            Self::Numbers(numbers) => {
                kind(9);
                kind(4);
                bytes.extend((numbers.len() as u64).to_le_bytes());
                numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            }
        }
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Deterministic pseudo-random numbers: large enough to change greedily decoded tokens, small enough for these to be words.
struct Rng(u64);

impl Rng {
    #[expect(clippy::cast_precision_loss, reason = "24 bits are exact")]
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.0 >> 40) as f32 / (1 << 24) as f32;
        (unit - 0.5) * 0.5
    }
}
