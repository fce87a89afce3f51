// Package docs tests the documentation: that its links lead somewhere, that the
// files, functions and tests it names exist, and that it keeps its form.
package docs
