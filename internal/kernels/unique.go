package kernels

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
)

// maxSuffix is the greatest width of what is appended to tell two kernels apart.
const maxSuffix = 20

var wordToken = regexp.MustCompile(`[A-Za-z0-9]+`)

// Names describes symbols that are shown together. Kernels that would share a short name get their tile size, the words
// in which their symbols differ, or the beginning of a hash of the symbol appended, whatever first tells them apart. The
// result depends only on the set of symbols, not on their order; equal symbols get equal names.
func Names(symbols []string) map[string]Kernel {
	out := make(map[string]Kernel, len(symbols))
	groups := make(map[string][]string)
	for _, s := range symbols {
		if _, ok := out[s]; ok {
			continue
		}
		k := Describe(s)
		out[s] = k
		groups[k.Short] = append(groups[k.Short], s)
	}
	resolve(out, groups)
	return out
}

// Resolve makes the short names of kernels described before unique among each other; kernels is changed in place. The
// keys are the symbols.
func Resolve(kernels map[string]Kernel) {
	groups := make(map[string][]string)
	for s, k := range kernels {
		groups[k.Short] = append(groups[k.Short], s)
	}
	resolve(kernels, groups)
}

func resolve(out map[string]Kernel, groups map[string][]string) {
	taken := make(map[string]bool, len(out))
	var shared []string
	for short, group := range groups {
		if len(group) == 1 {
			taken[short] = true
		} else {
			shared = append(shared, short)
		}
	}
	slices.Sort(shared)
	for _, short := range shared {
		slices.Sort(groups[short])
		separate(out, short, groups[short], taken)
	}
}

func separate(out map[string]Kernel, short string, group []string, taken map[string]bool) {
	words := differences(out, group)
	counts := make(map[string]int) // in how many symbols of the group a word occurs
	for _, list := range words {
		for _, w := range list {
			counts[w]++
		}
	}
	tiles := make(map[string]int) // how many of the group have a tile size
	for _, s := range group {
		tiles[tile(out[s].parsed)]++
	}
	var rest []string
	for i, s := range group {
		k := out[s]
		k.Short = ""
		size := tile(k.parsed)
		if tiles[size] > 1 {
			size = ""
		}
		for _, suffix := range suffixes(size, words, counts, i) {
			if len(suffix) > maxSuffix {
				continue
			}
			if name := join(short, suffix); !taken[name] {
				k.Short = name
				break
			}
		}
		if k.Short == "" {
			rest = append(rest, s)
			continue
		}
		taken[k.Short] = true
		out[s] = k
	}
	if len(rest) == 1 && !taken[short] {
		taken[short] = true // all the others say how they differ from it
		return
	}
	for _, s := range rest {
		k := out[s]
		k.Short = ""
		for digits := 4; k.Short == ""; digits += 4 {
			if name := join(short, "#"+hash(s, digits)); !taken[name] || digits >= 16 {
				k.Short = name
			}
		}
		taken[k.Short] = true
		out[s] = k
	}
}

// suffixes lists what could tell symbol i from the others of its group: a tile size that only it has, one word, or two
// that only it has.
func suffixes(tile string, words [][]string, counts map[string]int, i int) []string {
	var list []string
	if tile != "" {
		list = append(list, tile)
	}
	for _, w := range words[i] {
		if counts[w] == 1 {
			list = append(list, w)
		}
	}
	if len(list) > 0 {
		return list
	}
	for a, v := range words[i] {
		for _, w := range words[i][a+1:] {
			both := 0
			for _, other := range words {
				if slices.Contains(other, v) && slices.Contains(other, w) {
					both++
				}
			}
			if both == 1 {
				return []string{v + " " + w}
			}
		}
	}
	return nil
}

func join(short, suffix string) string {
	if room := MaxShort - 1 - len(suffix); len(short) > room {
		short = strings.TrimRight(short[:room], " ")
	}
	return short + " " + suffix
}

func hash(s string, digits int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return fmt.Sprintf("%016x", h.Sum64())[:digits]
}

func tile(s symbol) string {
	if m := tileToken.FindStringSubmatch(s.base + " " + s.args); m != nil {
		return m[1]
	}
	return ""
}

// maxWords bounds the words compared per symbol: telling apart is quadratic in them.
const maxWords = 16

// differences lists for each symbol the words, in order and each once, that not all of the group have.
func differences(out map[string]Kernel, group []string) [][]string {
	words := make([][]string, len(group))
	in := make(map[string]int)
	for i, s := range group {
		p := out[s].parsed
		text := p.path + " " + p.args
		if p.args == "" {
			text = p.full
		}
		if len(text) > maxArgs {
			text = text[:maxArgs]
		}
		seen := make(map[string]bool)
		for _, w := range wordToken.FindAllString(text, 256) {
			if d := dtypeNames[strings.ToLower(w)]; d != "" {
				w = d
			}
			if !seen[w] {
				seen[w] = true
				words[i] = append(words[i], w)
				in[w]++
			}
		}
	}
	for i := range words {
		words[i] = slices.DeleteFunc(words[i], func(w string) bool { return in[w] == len(group) })
		if len(words[i]) > maxWords {
			words[i] = words[i][:maxWords]
		}
	}
	return words
}
