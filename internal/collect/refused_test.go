package collect

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestRefusedOnceAMinute(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	now := time.Unix(1790000000, 0)
	r := NewRefused(zap.New(core), "Metrics were refused")
	r.now = func() time.Time { return now }
	for range 120 { // two minutes of collections
		r.Add(errors.New("full"))
		now = now.Add(time.Second)
	}
	var counts []int64
	for _, e := range logs.All() {
		assert.Equal(t, "Metrics were refused", e.Message)
		assert.Equal(t, "full", e.ContextMap()["error"])
		counts = append(counts, e.ContextMap()["count"].(int64))
	}
	assert.Equal(t, []int64{1, 60}, counts)
}
