package slimtelemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/graphsignal/graphsignal-collector/internal/selflog"
)

// NewFactory returns the factory that the Collector builder's "telemetry" key names.
func NewFactory() telemetry.Factory {
	return telemetry.NewFactory(createDefaultConfig, telemetry.WithCreateLogger(createLogger))
}

func createDefaultConfig() component.Config {
	return &Config{Logs: LogsConfig{
		Level:            zapcore.InfoLevel,
		Encoding:         "console",
		Sampling:         &SamplingConfig{Enabled: true, Tick: 10 * time.Second, Initial: 10, Thereafter: 100},
		OutputPaths:      []string{"stderr"},
		ErrorOutputPaths: []string{"stderr"},
	}}
}

func createLogger(_ context.Context, set telemetry.LoggerSettings, cfg component.Config) (*zap.Logger, component.ShutdownFunc, error) {
	c := cfg.(*Config)
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	build := set.BuildZapLogger
	if build == nil {
		build = zap.Config.Build
	}
	logger, err := build(zap.Config{
		Level:             zap.NewAtomicLevelAt(c.Logs.Level),
		Development:       c.Logs.Development,
		Encoding:          c.Logs.Encoding,
		EncoderConfig:     encoder,
		OutputPaths:       c.Logs.OutputPaths,
		ErrorOutputPaths:  c.Logs.ErrorOutputPaths,
		DisableCaller:     c.Logs.DisableCaller,
		DisableStacktrace: c.Logs.DisableStacktrace,
		InitialFields:     c.Logs.InitialFields,
	})
	if err != nil {
		return nil, nil, err
	}
	logger = logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		if s := c.Logs.Sampling; s != nil && s.Enabled {
			core = zapcore.NewSamplerWithOptions(core, s.Tick, s.Initial, s.Thereafter)
		}
		return selflog.Default.Tee(core)
	}))
	if keys := c.ignored(); len(keys) > 0 {
		logger.Warn("This distribution has no telemetry of its own except logs; without effect: " + strings.Join(keys, ", "))
	}
	return logger, func(context.Context) error {
		_ = logger.Sync() // fails on terminals and pipes, where nothing is buffered
		return nil
	}, nil
}
