"""Attention as texts and models write it by hand: two products and a softmax between them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, HEADS, HEAD_DIM = 2, 7, 15, 3, 5


class SelfAttentionV1(nn.Module):
    """One text, `[length, dim]`, and matrices as parameters."""

    def __init__(self, d_in=WIDTH, d_out=11):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def qk(self, x):
        return x @ self.W_query, x @ self.W_key

    def v(self, x):
        return x @ self.W_value

    def forward(self, x):
        (queries, keys), values = self.qk(x), self.v(x)
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return attn_weights @ values


class SelfAttentionV2(nn.Module):
    """One text, and layers without a bias."""

    def __init__(self, d_in=WIDTH, d_out=11):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)

    def qk(self, x):
        return self.W_query(x), self.W_key(x)

    def v(self, x):
        return self.W_value(x)

    forward = SelfAttentionV1.forward


class CausalAttention(SelfAttentionV2):
    """A batch of texts, a mask that is filled in place, and dropout."""

    def __init__(self, d_in=WIDTH, d_out=11, dropout=0.3):
        super().__init__(d_in, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(LENGTH + 4, LENGTH + 4), diagonal=1))

    def forward(self, x):
        _, num_tokens, _ = x.shape
        keys, queries, values = self.W_key(x), self.W_query(x), self.W_value(x)
        attn_scores = queries @ keys.transpose(1, 2)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return self.dropout(attn_weights) @ values


class MultiHeadAttention(CausalAttention):
    """Several heads by a view."""

    def __init__(self, d_in=WIDTH, d_out=HEADS * HEAD_DIM, dropout=0.3):
        super().__init__(d_in, d_out, dropout)
        self.num_heads, self.head_dim = HEADS, HEAD_DIM
        self.out_proj = nn.Linear(d_out, d_out)

    def qk(self, x):
        return [split(layer(x)) for layer in (self.W_query, self.W_key)]

    def forward(self, x):
        b, num_tokens, _ = x.shape
        keys, queries, values = (
            layer(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for layer in (self.W_key, self.W_query, self.W_value)
        )
        attn_scores = queries @ keys.transpose(2, 3)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, -1)
        return self.out_proj(context_vec)


class SlowPath(nn.Module):
    """A block of a language model without flash attention."""

    def __init__(self, dropout=0.2):
        super().__init__()
        self.n_head, self.n_embd = HEADS, WIDTH
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        mask = torch.tril(torch.ones(LENGTH + 4, LENGTH + 4))
        self.register_buffer("bias", mask.view(1, 1, LENGTH + 4, LENGTH + 4))

    def qk(self, x):
        return [split(one) for one in self.c_attn(x).split(self.n_embd, dim=2)[:2]]

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


def split(x):
    """Heads of `[batch, length, heads * head_dim]`."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Block(nn.Module):
    """Projections around a function of queries, keys and values, `[batch, heads, length, dim]`."""

    def __init__(self, attend, kv_heads=HEADS):
        super().__init__()
        self.attend, self.num_heads, self.kv_heads = attend, HEADS, kv_heads
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key, self.value = (nn.Linear(WIDTH, kv_heads * HEAD_DIM) for _ in range(2))

    def qk(self, x):
        key = self.key(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        return split(self.query(x)), key

    def forward(self, x):
        query, key = self.qk(x)
        value = self.value(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        made = self.attend(query, key, value)
        return self.out(made.transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Blocks by the names "blocks.0" and so on."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
