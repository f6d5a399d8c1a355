import HapaxModel
import Testing

@Suite("Instants as text (RFC 3339)", .endsWhenItHangs)
struct TimestampTests {
    @Test(
        "What is read, and how it is written: always with six digits, in UTC",
        arguments: [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"), ("2026-11-25t09:00:00.5z", "2026-11-25T09:00:00.500000Z"),
            ("2026-11-25T01:30:00.1234567891+02:00", "2026-11-24T23:30:00.123456Z"),
            ("2024-02-29T23:59:59-05:30", "2024-03-01T05:29:59.000000Z"), ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ])
    func textIsReadAndWritten(text: String, written: String) throws {
        let instant = try #require(Timestamp(text))
        #expect(instant.description == written)
        #expect(Timestamp(written) == instant)
    }

    @Test(
        "What is no instant is refused",
        arguments: [
            "", "2026-11-25", "2026-11-25T09:00Z", "2026-11-25 09:00:00Z", "2026-11-25T24:00:00Z", "2026-11-25T09:60:00Z",
            "2026-11-25T23:59:60Z", "2026-02-29T00:00:00Z", "2026-11-25T09:00:00", "2026-11-25T09:00:00.Z", "2026-11-25T09:00:00+2:00",
            "2026-11-25T09:00:00+24:00", "1970-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "2026-11-25T09:00:00Zx",
            "+026-11-25T09:00:00Z",
        ])
    func otherTextIsRefused(text: String) {
        #expect(Timestamp(text) == nil)
    }
}
