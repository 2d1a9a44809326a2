package workloadextension

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestEarlyStop: a signal that comes before the Collector listens for it reaches it when it does.
func TestEarlyStop(t *testing.T) {
	for _, stop := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		e := start(t, testConfig(t, os.Getpid()), newHost())
		require.NoError(t, e.Ready())
		arrived := make(chan os.Signal, 1)
		signal.Notify(arrived, stop)
		require.NoError(t, unix.Kill(os.Getpid(), stop))
		<-arrived
		signal.Stop(arrived)
		listening := make(chan os.Signal, 1)
		signal.Notify(listening, stop)
		select {
		case got := <-listening:
			require.Equal(t, os.Signal(stop), got)
		case <-time.After(deadline):
			t.Errorf("%v was lost", stop)
		}
		// From here on the Collector shuts down.
		require.NoError(t, e.NotReady())
		require.NoError(t, e.Shutdown(context.Background()))
		signal.Stop(listening)
	}
}
