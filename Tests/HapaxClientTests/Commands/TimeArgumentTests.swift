import Testing

@testable import hapax

@Suite("A time on the command line (RFC 3339)", .endsWhenItHangs)
struct TimeArgumentTests {
    @Test(
        "is the moment it says",
        arguments: [
            ("1763680000000", 1_763_680_000_000), ("2025-11-20T23:06:40Z", 1_763_680_000_000), ("2025-11-20t23:06:40z", 1_763_680_000_000),
            ("2025-11-20T23:06:40.999Z", 1_763_680_000_999), ("2025-11-21T00:36:40+01:30", 1_763_680_000_000),
            ("2025-11-20T19:06:40-04:00", 1_763_680_000_000), ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("1970-01-01T00:00:00.001+00:00", 1), ("2025-11-21T23:05:40+23:59", 1_763_680_000_000),
        ] as [(String, Int64)])
    func timesAreRead(text: String, milliseconds: Int64) {
        #expect(TimeArgument(argument: text)?.unixMilliseconds == milliseconds)
    }

    @Test(
        "or no time at all",
        arguments: [
            "2025-02-29T00:00:00Z", "2025-02-30T00:00:00Z", "2025-11-31T00:00:00Z", "2025-13-01T00:00:00Z", "2025-11-22T24:00:00Z",
            "2025-11-22T10:60:00Z", "2025-11-22T10:00:00+99:00", "2025-11-22T10:00:00+01:60", "2025-11-22T10:00:00+-1:00",
            "2025-11-22T10:00:00", "2025-11-22", "-1", "253402300800000", "now", "",
        ])
    func impossibleTimesAreRefused(text: String) {
        #expect(TimeArgument(argument: text) == nil)
    }
}
