"""Pictures, text and sound with the networks of Hugging Face transformers, small and new."""

from __future__ import annotations

from typing import Any

import transformers as tf
from torch import nn

from zoo.data import SIDE, TOPICS, VOCABULARY, WORDS, digits, sentences, sounds, spectrograms
from zoo.training import Scores, Trained, trained

_EAGER = {"attn_implementation": "eager"}
_TEXT = {
    "vocab_size": VOCABULARY,
    "num_labels": TOPICS,
    "pad_token_id": 0,
    "max_position_embeddings": WORDS,
}


def _pictures(make: type, config: Any, **options: Any) -> Trained:
    return trained(lambda: Scores(make(config), "pixel_values"), digits(), **options)


def resnet() -> Trained:
    """ResNet-18 with half its channels."""
    config = tf.ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=10,
    )
    return _pictures(tf.ResNetForImageClassification, config)


def mobilenet_v2() -> Trained:
    """MobileNetV2 with half its channels."""
    config = tf.MobileNetV2Config(
        image_size=SIDE,
        depth_multiplier=0.5,
        tf_padding=False,
        num_labels=10,
        classifier_dropout_prob=0.1,
    )
    return _pictures(tf.MobileNetV2ForImageClassification, config, epochs=5, rate=3e-3)


def efficientnet() -> Trained:
    """EfficientNet-B0 with half its channels and blocks."""
    config = tf.EfficientNetConfig(
        image_size=SIDE,
        width_coefficient=0.5,
        depth_coefficient=0.5,
        hidden_dim=640,
        num_labels=10,
        dropout_rate=0.1,
        drop_connect_rate=0.0,
    )

    def build() -> nn.Module:
        model = tf.EfficientNetForImageClassification(config)
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                # transformers begins with about 0.02, and the signal dies away
                nn.init.ones_(layer.weight)
        return Scores(model, "pixel_values")

    return trained(build, digits(), epochs=4, rate=3e-3)


def swin() -> Trained:
    """Swin with windows of 4 x 4 patches."""
    config = tf.SwinConfig(
        image_size=SIDE,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2, 2],
        num_heads=[2, 4, 8],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=10,
        initializer_range=0.1,
        **_EAGER,
    )
    return _pictures(tf.SwinForImageClassification, config, epochs=6, rate=2e-3)


def vit() -> Trained:
    """ViT with patches of 16 x 16 pixels."""
    config = tf.ViTConfig(
        image_size=SIDE,
        patch_size=16,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=10,
        initializer_range=0.1,
        **_EAGER,
    )
    return _pictures(tf.ViTForImageClassification, config, epochs=24, rate=2e-3, moved=4)


def deit() -> Trained:
    """DeiT with patches of 16 x 16 pixels."""
    config = tf.DeiTConfig(
        image_size=SIDE,
        patch_size=16,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=10,
        initializer_range=0.1,
    )
    return _pictures(tf.DeiTForImageClassification, config, epochs=24, rate=2e-3, moved=4)


class MaskedScores(Scores):
    """A model of texts with a mask; its inputs have the names that transformers gives them."""

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the scores of classes, ``(n, 4)``."""
        return super().forward(input_ids, attention_mask)


def _text(make: type, config: Any, *, mask: bool = False, **options: Any) -> Trained:
    names = ("input_ids", "attention_mask") if mask else ("input_ids",)
    kind = MaskedScores if mask else Scores
    return trained(lambda: kind(make(config), *names), sentences(mask=mask), **options)


def _bert() -> Any:
    return tf.BertConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        **_TEXT,
        **_EAGER,
    )


def bert() -> Trained:
    """BERT on sentences of full length."""
    return _text(tf.BertForSequenceClassification, _bert())


def bert_mask() -> Trained:
    """BERT on sentences of any length, with a mask."""
    return _text(tf.BertForSequenceClassification, _bert(), mask=True, epochs=4)


def distilbert() -> Trained:
    """DistilBERT on sentences of full length."""
    config = tf.DistilBertConfig(dim=64, n_layers=3, n_heads=4, hidden_dim=128, **_TEXT)
    return _text(tf.DistilBertForSequenceClassification, config)


class LastWord(nn.Module):
    """A causal model with scores of classes from the last word."""

    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.head = model, nn.Linear(width, TOPICS)

    def forward(self, input_ids: Any) -> Any:
        """Return the scores of classes, ``(n, 4)``."""
        return self.head(
            self.model(input_ids=input_ids, use_cache=False, return_dict=False)[0][:, -1]
        )


def gpt2() -> Trained:
    """GPT-2, which is causal."""
    config = tf.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=WORDS,
        n_embd=64,
        n_layer=3,
        n_head=4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return trained(lambda: LastWord(tf.GPT2Model(config), 64), sentences())


def llama() -> Trained:
    """Llama with grouped keys, which is causal."""
    config = tf.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WORDS,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return trained(lambda: LastWord(tf.LlamaModel(config), 64), sentences())


def whisper() -> Trained:
    """Whisper's encoder, with scores of classes."""
    config = tf.WhisperConfig(
        num_mel_bins=16,
        d_model=64,
        encoder_layers=3,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        max_source_positions=32,
        num_labels=TOPICS,
        classifier_proj_size=32,
        vocab_size=VOCABULARY,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=1,
    )
    make = tf.WhisperForAudioClassification
    return trained(lambda: Scores(make(config), "input_features"), spectrograms(), epochs=4)


def wav2vec2() -> Trained:
    """wav2vec 2.0 with scores of classes."""
    config = tf.Wav2Vec2Config(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=TOPICS,
        conv_dim=(32, 32, 32),
        conv_kernel=(10, 5, 3),
        conv_stride=(5, 4, 2),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        classifier_proj_size=32,
        mask_time_prob=0.0,
        layerdrop=0.0,
    )
    make = tf.Wav2Vec2ForSequenceClassification
    return trained(lambda: Scores(make(config), "input_values"), sounds(), epochs=4)
