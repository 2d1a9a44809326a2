package cuptireceiver

import "github.com/graphsignal/graphsignal-collector/internal/shmreceiver"

// Config is the configuration of the receiver.
type Config = shmreceiver.Config
