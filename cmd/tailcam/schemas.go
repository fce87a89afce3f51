package main

import (
	"reflect"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/activities/ask"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/demo"
	"github.com/tailcam/tailcam/internal/doctor"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/internal/fleet"
	"github.com/tailcam/tailcam/internal/leftovers"
	"github.com/tailcam/tailcam/internal/pagecache"
	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/tracker"
)

// schemaNames names the schema of every type that -o json and yaml print. Fields are only
// added to these types: a reader of an earlier release understands what it knows. The schemas
// in configs/schemas are generated of them.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[accounts.Group]():    "account-group",
	reflect.TypeFor[api.HistogramInfo](): "histogram",
	reflect.TypeFor[ask.Comparison]():    "activity-diff",
	reflect.TypeFor[ask.Row]():           "activities",
	reflect.TypeFor[ask.Slow]():          "activity-slow",
	reflect.TypeFor[api.Reload]():        "reload",
	reflect.TypeFor[api.RuleInfo]():      "rule",
	reflect.TypeFor[api.Status]():        "status",
	reflect.TypeFor[api.ThresholdInfo](): "threshold",
	reflect.TypeFor[catalog.Check]():     "verification",
	reflect.TypeFor[catalog.Details]():   "snapshot-details",
	reflect.TypeFor[catalog.Diff]():      "diff",
	reflect.TypeFor[catalog.Snapshot]():  "snapshot",
	reflect.TypeFor[checkOutcome]():      "check",
	reflect.TypeFor[demo.Result]():       "demo",
	reflect.TypeFor[doctor.Result]():     "doctor",
	reflect.TypeFor[eventcost.Event]():   "event",
	reflect.TypeFor[outlierLine]():       "outlier",
	reflect.TypeFor[explain.Report]():    "explanation",
	reflect.TypeFor[leftovers.Item]():    "leftover",
	reflect.TypeFor[packed]():            "packed",
	reflect.TypeFor[fleet.Event]():       "fleet-event",
	reflect.TypeFor[fleet.Top]():         "fleet-top",
	reflect.TypeFor[pagecache.Report]():  "cache",
	reflect.TypeFor[pinning]():           "pin",
	reflect.TypeFor[record.Comparison](): "comparison",
	reflect.TypeFor[record.Report]():     "record",
	reflect.TypeFor[removal]():           "removal",
	reflect.TypeFor[takenSnapshot]():     "taken-snapshot",
	reflect.TypeFor[topJSON]():           "top",
	reflect.TypeFor[tracker.Probe]():     "probe",
	reflect.TypeFor[verdictNotice]():     "verdict",
	reflect.TypeFor[versionInfo]():       "version",
	reflect.TypeFor[waitTimeout]():       "wait-timeout",
}

// schemaID is the value of the field schema, such as tailcam/status/v1. The number is raised
// only if a field gets another meaning, which has not happened.
func schemaID(name string) string { return "tailcam/" + name + "/v1" }
