from .rung1_simple_self_attention import simple_self_attention as simple_self_attention
from .rung2_self_attention_v1 import SelfAttention_v1 as SelfAttention_v1
from .rung2_self_attention_v1 import SelfAttentionV1 as SelfAttentionV1
from .rung3_self_attention_v2 import ScaledDotProductAttention as ScaledDotProductAttention
from .rung3_self_attention_v2 import SelfAttention_v2 as SelfAttention_v2
from .rung3_self_attention_v2 import SelfAttentionV2 as SelfAttentionV2
from .rung4_causal_attention import CausalAttention as CausalAttention
from .rung5_multi_head_attention_wrapper import (
    MultiHeadAttentionWrapper as MultiHeadAttentionWrapper,
)
from .rung6_multi_head_attention import MultiHeadAttention as MultiHeadAttention
from .rung7_encoder_multi_head_attention import (
    EncoderMultiHeadAttention as EncoderMultiHeadAttention,
)
from .rung8_key_value_store import Answer as Answer
from .rung8_key_value_store import KeyValueStore as KeyValueStore
from .rung8_key_value_store import hard_attention as hard_attention
from .rung8_key_value_store import soft_attention as soft_attention
from .rung9_encoder import Embeddings as Embeddings
from .rung9_encoder import Encoder as Encoder
from .rung9_encoder import create_sinusoidal_embeddings as create_sinusoidal_embeddings
from .rung9_encoder_layer import CNN as CNN
from .rung9_encoder_layer import EncoderLayer as EncoderLayer
from .rung9_transformer_classifier import TransformerClassifier as TransformerClassifier
from .rung10_why_attention import AttentionContext as AttentionContext
from .rung10_why_attention import FixedContext as FixedContext
from .rung10_why_attention import SequenceToSequence as SequenceToSequence
from .rung10_why_attention import sentences_to_reverse as sentences_to_reverse
from .rung11_grouped_query_attention import GroupedQueryAttention as GroupedQueryAttention
from .rung12_latent_attention import LatentAttention as LatentAttention
from .rung12_latent_attention import rotated as rotated
from .rung13_sliding_window_attention import SlidingWindowAttention as SlidingWindowAttention
from .rung14_sparse_attention import SparseAttention as SparseAttention
from .rung15_gated_attention import GatedAttention as GatedAttention
from .rung16_delta_rule import GatedDeltaNet as GatedDeltaNet
from .rung16_delta_rule import delta_rule as delta_rule
from .worked_example import HELLO_SHINY_SUN as HELLO_SHINY_SUN
from .worked_example import JOURNEY as JOURNEY
from .worked_example import WorkedExample as WorkedExample

__all__: list[str]
