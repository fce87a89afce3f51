// Package fleet holds the tests of what a fleet sends and asks: daemons' exporters, the collector
// with the shipped configuration, a real ClickHouse, and the command line. `make test-fleet` runs
// them.
package fleet
