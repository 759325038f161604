// Package nvdtest is a fake of the NVD's API 2.0 and of CISA's KEV catalogue, for tests of whatever reads them.
//
// A [World] holds records and a catalogue, made up from a seed or read from a folder, and lives through days: each brings
// edits of the kinds that the real ones see. A [Server] serves a World over HTTP as the NVD and CISA do, with the
// NVD's limit in a strict sliding window, which can be shorter than 30 s, and on demand with each [Fault] that clients of
// them have reported.
//
//	world := nvdtest.Synthetic(1, 271)
//	server := &nvdtest.Server{World: world, Window: 300 * time.Millisecond}
//	ts := httptest.NewServer(server)
//	// … ask ts.URL + nvdtest.NVDPath + "?cveIds=" + strings.Join(world.IDs()[:100], ",")
//	server.Inject(nvdtest.Fault{Kind: nvdtest.Status, Status: 503, Times: 2})
//	edits := world.NextDay()
//
// All of it is invented; nothing is a statement on a real product.
package nvdtest
