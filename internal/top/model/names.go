package model

import (
	"github.com/graphsignal/graphsignal-collector/internal/kernels"
)

// maxNames bounds the described symbols that are remembered: twice as many as a document has frames.
const maxNames = 128 << 10

// nameCache remembers descriptions, and the resolved names of the last set of symbols.
type nameCache struct {
	described map[string]kernels.Kernel
	resolved  map[string]kernels.Kernel
}

func newNameCache() *nameCache {
	return &nameCache{described: make(map[string]kernels.Kernel)}
}

// names gives every symbol a name of its own within the set.
func (c *nameCache) names(symbols []string) map[string]kernels.Kernel {
	same := len(symbols) == len(c.resolved)
	for _, s := range symbols {
		if !same {
			break
		}
		_, same = c.resolved[s]
	}
	if same {
		return c.resolved
	}
	if len(c.described)+len(symbols) > maxNames {
		clear(c.described)
	}
	c.resolved = make(map[string]kernels.Kernel, len(symbols))
	for _, s := range symbols {
		k, ok := c.described[s]
		if !ok {
			k = kernels.Describe(s)
			c.described[s] = k
		}
		c.resolved[s] = k
	}
	kernels.Resolve(c.resolved)
	return c.resolved
}
