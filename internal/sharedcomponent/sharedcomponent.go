// Package sharedcomponent lets the pipelines of several signals share one instance of a component, which is then
// started once and shut down once.
package sharedcomponent

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/collector/component"
)

// Map holds the shared components by a key, usually the pointer to their configuration: all pipelines that use one
// component ID get the same one.
type Map[K comparable, C component.Component] struct {
	untilLast  bool
	mu         sync.Mutex
	components map[K]*Component[C]
}

// New returns an empty Map for receivers: the first pipeline that shuts one down ends it, so that nothing is sent
// to a pipeline that is gone.
func New[K comparable, C component.Component]() *Map[K, C] {
	return &Map[K, C]{components: make(map[K]*Component[C])}
}

// NewUntilLast returns an empty Map for exporters: the last pipeline that shuts one down ends it, when all are
// drained.
func NewUntilLast[K comparable, C component.Component]() *Map[K, C] {
	m := New[K, C]()
	m.untilLast = true
	return m
}

// LoadOrStore returns the component of a key and makes it with create when there is none.
func (m *Map[K, C]) LoadOrStore(key K, create func() (C, error)) (*Component[C], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.components[key]; ok {
		c.users.Add(1)
		return c, nil
	}
	inner, err := create()
	if err != nil {
		return nil, err
	}
	c := &Component[C]{inner: inner, untilLast: m.untilLast, remove: func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.components, key)
	}}
	c.users.Store(1)
	m.components[key] = c
	return c, nil
}

// Component is one shared component.
type Component[C component.Component] struct {
	inner     C
	untilLast bool
	remove    func()
	users     atomic.Int64

	start, stop       sync.Once
	startErr, stopErr error
}

var _ component.Component = (*Component[component.Component])(nil)

// Unwrap returns the component itself.
func (c *Component[C]) Unwrap() C { return c.inner }

// Start starts the component, the first time; later calls return the same result.
func (c *Component[C]) Start(ctx context.Context, host component.Host) error {
	c.start.Do(func() { c.startErr = c.inner.Start(ctx, host) })
	return c.startErr
}

// Shutdown shuts the component down, once, and takes it from its Map; later calls return the same result. Before
// the last user of a Map made by NewUntilLast it does nothing.
func (c *Component[C]) Shutdown(ctx context.Context) error {
	if left := c.users.Add(-1); c.untilLast && left > 0 {
		return nil
	}
	c.stop.Do(func() {
		c.remove()
		c.stopErr = c.inner.Shutdown(ctx)
	})
	return c.stopErr
}
