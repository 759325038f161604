package storetest

func transcripts() []check { return nil }
