// Package fold puts decoded pdata into a store.
package fold

import (
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/graphsignal/graphsignal-collector/internal/signal"
	"github.com/graphsignal/graphsignal-collector/internal/store"
)

// Metrics sets every series and resource of md in s. It returns what the store refused, and what could not be decoded.
func Metrics(s *store.Store, md pmetric.Metrics) (outcome store.Outcome, unsupported signal.Unsupported) {
	outcome = s.Update(func(b *store.Batch) {
		unsupported = signal.Decode(md, sink{b})
	})
	return outcome, unsupported
}

// sink makes a store.Batch a signal.Sink.
type sink struct{ *store.Batch }

// Entity implements signal.Sink.
func (s sink) Entity(entity signal.Entity, firstSeen, lastSeen int64) {
	s.Resource(entity.Kind, entity.ID, entity.Attributes, firstSeen, lastSeen)
}
