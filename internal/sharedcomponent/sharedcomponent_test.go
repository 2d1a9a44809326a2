package sharedcomponent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
)

type counting struct {
	starts, stops int
	err           error
}

func (c *counting) Start(context.Context, component.Host) error { c.starts++; return c.err }
func (c *counting) Shutdown(context.Context) error              { c.stops++; return c.err }

func TestOneComponentPerKey(t *testing.T) {
	m := New[string, *counting]()
	create := func() (*counting, error) { return &counting{}, nil }
	a, err := m.LoadOrStore("a", create)
	require.NoError(t, err)
	again, err := m.LoadOrStore("a", create)
	require.NoError(t, err)
	b, err := m.LoadOrStore("b", create)
	require.NoError(t, err)
	assert.Same(t, a, again)
	assert.NotSame(t, a.Unwrap(), b.Unwrap())

	host := componenttest.NewNopHost()
	for range 2 {
		require.NoError(t, a.Start(t.Context(), host))
	}
	for range 2 {
		require.NoError(t, a.Shutdown(t.Context()))
	}
	assert.Equal(t, counting{starts: 1, stops: 1}, *a.Unwrap())

	later, err := m.LoadOrStore("a", create)
	require.NoError(t, err)
	assert.NotSame(t, a, later, "a component that was shut down is not used again")
}

func TestErrors(t *testing.T) {
	m := New[string, *counting]()
	failure := errors.New("no")
	_, err := m.LoadOrStore("a", func() (*counting, error) { return nil, failure })
	require.ErrorIs(t, err, failure)
	c, err := m.LoadOrStore("a", func() (*counting, error) { return &counting{err: failure}, nil })
	require.NoError(t, err, "a failed creation leaves nothing behind")
	for range 2 {
		require.ErrorIs(t, c.Start(t.Context(), nil), failure)
	}
	require.ErrorIs(t, c.Shutdown(t.Context()), failure)
}

func TestUntilLast(t *testing.T) {
	m := NewUntilLast[string, *counting]()
	create := func() (*counting, error) { return &counting{}, nil }
	a, err := m.LoadOrStore("a", create)
	require.NoError(t, err)
	_, err = m.LoadOrStore("a", create)
	require.NoError(t, err)
	require.NoError(t, a.Shutdown(t.Context()))
	assert.Equal(t, 0, a.Unwrap().stops, "another pipeline uses it still")
	require.NoError(t, a.Shutdown(t.Context()))
	assert.Equal(t, 1, a.Unwrap().stops)
}
