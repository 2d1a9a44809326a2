package collect

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
)

// ReportedMetrics returns next so that the Collector's own telemetry counts the points that a receiver hands on
// (otelcol_receiver_accepted_metric_points and its siblings). transport is how they came: "http", "file", ….
func ReportedMetrics(set receiver.Settings, transport string, next consumer.Metrics) (consumer.Metrics, error) {
	obs, err := newReport(set, transport)
	if err != nil {
		return nil, err
	}
	return reportedMetrics{next, obs, set.ID.Type().String()}, nil
}

// ReportedLogs is ReportedMetrics for log records.
func ReportedLogs(set receiver.Settings, transport string, next consumer.Logs) (consumer.Logs, error) {
	obs, err := newReport(set, transport)
	if err != nil {
		return nil, err
	}
	return reportedLogs{next, obs, set.ID.Type().String()}, nil
}

func newReport(set receiver.Settings, transport string) (*receiverhelper.ObsReport, error) {
	return receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: set.ID, Transport: transport, ReceiverCreateSettings: set,
	})
}

type reportedMetrics struct {
	consumer.Metrics
	obs    *receiverhelper.ObsReport
	format string
}

func (r reportedMetrics) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	points := md.DataPointCount() // afterwards the data are another's
	op := r.obs.StartMetricsOp(ctx)
	err := r.Metrics.ConsumeMetrics(op, md)
	r.obs.EndMetricsOp(op, r.format, points, err)
	return err
}

type reportedLogs struct {
	consumer.Logs
	obs    *receiverhelper.ObsReport
	format string
}

func (r reportedLogs) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	records := ld.LogRecordCount()
	op := r.obs.StartLogsOp(ctx)
	err := r.Logs.ConsumeLogs(op, ld)
	r.obs.EndLogsOp(op, r.format, records, err)
	return err
}
