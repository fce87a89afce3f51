package explain_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot/trace"
)

func ExampleExplain() {
	events, err := trace.Read("/var/lib/tailcam/snapshots/20261121T013004.557441426Z-wakeup-000001/trace")
	if err != nil {
		log.Fatal(err)
	}
	report, err := explain.Explain(events, []explain.Outlier{{
		Rule: "wakeup", Track: "wakeup", Start: 1_000_000_000, End: 1_020_000_000, TID: 1234, Comm: "postgres",
	}}, explain.Names{})
	if err := errors.Join(err, events.Close()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Outliers[0].Verdict)
	for _, part := range report.Outliers[0].Parts {
		fmt.Println(part.Cause, part.NS)
	}
}
