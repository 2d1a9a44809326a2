package cuptireceiver

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/graphsignal/graphsignal-collector/internal/shmreceiver/shmreceivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReceiver(t *testing.T) { shmreceivertest.Run(t, NewFactory()) }
