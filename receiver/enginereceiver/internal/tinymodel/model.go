// Package tinymodel writes a language model of random weights, small enough for tests, in the GGUF format of llama.cpp
// (docs/gguf.md of ggml, version 3). What it says is noise.
package tinymodel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Dimensions of the model, which has the architecture "llama".
const (
	embedding   = 64
	heads       = 4
	feedForward = 128
	blocks      = 2
	context     = 512
)

// Value types of GGUF metadata, and the type of a tensor of 32-bit floats.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeString  = 8
	typeArray   = 9

	tensorFloat32 = 0
	alignment     = 32
)

// Token types of the SentencePiece vocabulary.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenByte    = 6
)

type writer struct{ bytes.Buffer }

func (w *writer) number(v any) {
	if err := binary.Write(w, binary.LittleEndian, v); err != nil {
		panic(err) // a type without a fixed size
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.WriteString(s)
}

func (w *writer) pad() {
	for w.Len()%alignment != 0 {
		w.WriteByte(0)
	}
}

// metadata collects the key-value pairs.
type metadata struct {
	writer
	count uint64
}

func (m *metadata) key(name string, valueType uint32) {
	m.count++
	m.text(name)
	m.number(valueType)
}

func (m *metadata) uint32(name string, v uint32) {
	m.key(name, typeUint32)
	m.number(v)
}

func (m *metadata) string(name, v string) {
	m.key(name, typeString)
	m.text(v)
}

func (m *metadata) array(name string, elementType uint32, n int) {
	m.key(name, typeArray)
	m.number(elementType)
	m.number(uint64(n))
}

// New returns the file's content, the same each time.
func New() []byte {
	var m metadata
	m.string("general.architecture", "llama")
	m.string("general.name", "noise")
	words, scores, types := vocabulary()
	m.uint32("llama.context_length", context)
	m.uint32("llama.embedding_length", embedding)
	m.uint32("llama.block_count", blocks)
	m.uint32("llama.feed_forward_length", feedForward)
	m.uint32("llama.attention.head_count", heads)
	m.uint32("llama.attention.head_count_kv", heads)
	m.uint32("llama.rope.dimension_count", embedding/heads)
	m.uint32("llama.vocab_size", uint32(len(words)))
	m.key("llama.attention.layer_norm_rms_epsilon", typeFloat32)
	m.number(float32(1e-5))
	m.string("tokenizer.ggml.model", "llama")
	m.array("tokenizer.ggml.tokens", typeString, len(words))
	for _, word := range words {
		m.text(word)
	}
	m.array("tokenizer.ggml.scores", typeFloat32, len(scores))
	m.number(scores)
	m.array("tokenizer.ggml.token_type", typeInt32, len(types))
	m.number(types)
	m.uint32("tokenizer.ggml.unknown_token_id", 0)
	m.uint32("tokenizer.ggml.bos_token_id", 1)
	m.uint32("tokenizer.ggml.eos_token_id", 2)

	var tensors, data writer
	random := rand.New(rand.NewPCG(1, 2))
	count := uint64(0)
	tensor := func(name string, norm bool, dimensions ...uint64) {
		count++
		tensors.text(name)
		tensors.number(uint32(len(dimensions)))
		tensors.number(dimensions)
		tensors.number(uint32(tensorFloat32))
		tensors.number(uint64(data.Len()))
		n := uint64(1)
		for _, d := range dimensions {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			if values[i] = 1; !norm {
				values[i] = float32(random.NormFloat64() / 10)
			}
		}
		data.number(values)
		data.pad()
	}
	tensor("token_embd.weight", false, embedding, uint64(len(words)))
	tensor("output_norm.weight", true, embedding)
	tensor("output.weight", false, embedding, uint64(len(words)))
	for i := range blocks {
		block := fmt.Sprintf("blk.%d.", i)
		tensor(block+"attn_norm.weight", true, embedding)
		for _, part := range []string{"q", "k", "v", "output"} {
			tensor(block+"attn_"+part+".weight", false, embedding, embedding)
		}
		tensor(block+"ffn_norm.weight", true, embedding)
		tensor(block+"ffn_gate.weight", false, embedding, feedForward)
		tensor(block+"ffn_up.weight", false, embedding, feedForward)
		tensor(block+"ffn_down.weight", false, feedForward, embedding)
	}

	var file writer
	file.WriteString("GGUF")
	file.number(uint32(3))
	file.number(count)
	file.number(m.count)
	file.Write(m.Bytes())
	file.Write(tensors.Bytes())
	file.pad()
	file.Write(data.Bytes())
	return file.Bytes()
}

// vocabulary has the three special tokens, all bytes, and the letters alone and at the beginning of a word.
func vocabulary() (words []string, scores []float32, types []int32) {
	add := func(word string, score float32, typ int32) {
		words, scores, types = append(words, word), append(scores, score), append(types, typ)
	}
	add("<unk>", 0, tokenUnknown)
	add("<s>", 0, tokenControl)
	add("</s>", 0, tokenControl)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, tokenByte)
	}
	for letter := 'a'; letter <= 'z'; letter++ {
		add("\u2581"+string(letter), -float32(letter-'a'), tokenNormal)
		add(string(letter), -float32(letter), tokenNormal)
	}
	return words, scores, types
}
