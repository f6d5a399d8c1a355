/// Every limit that client and server both obey, in one place.
///
/// Text limits count unescaped UTF-8 bytes. Values are checked before any arithmetic is done with them, so that no input can trap.
/// A value equal to its maximum is allowed.
public enum EventLimits {
    /// The latest `time` and `sent_at`: the last millisecond of the year 9999, in Unix milliseconds. The earliest is 0.
    public static let maximumTime: Int64 = 253_402_300_799_999

    /// Bytes of an event's name.
    public static let maximumNameBytes = 200

    /// Bytes of a `distinct_id`.
    public static let maximumDistinctIDBytes = 200

    /// Bytes of one encoded event, from its opening to its closing brace.
    public static let maximumEventBytes = 32 * 1024

    /// Nested objects and arrays of one event; the event itself is the first.
    public static let maximumDepth = 32

    /// Keys of one object, repeated keys counted each time.
    public static let maximumKeysPerObject = 256

    /// Characters of one number.
    public static let maximumNumberCharacters = 64

    /// The exponent of a number that is written with one, either sign. Beyond it PostgreSQL's `numeric` cannot hold the value.
    package static let maximumNumberExponent = 1_000

    /// Events of one batch.
    public static let maximumEventsPerBatch = 1_000

    /// Bytes of a request's body as it travels.
    package static let maximumBodyBytes = 1024 * 1024

    /// Bytes of a request's body after decompression.
    package static let maximumDecompressedBodyBytes = 8 * 1024 * 1024

    /// Bytes of a batch that our own client sends, before compression.
    public static let maximumClientBatchBytes = 512 * 1024

    /// Bytes of an answer that our own client reads; a longer one is not a receipt.
    package static let maximumAnswerBytes = 1024 * 1024

    /// Bytes of a rejection's explanation; a longer one is cut.
    package static let maximumDetailBytes = 200

    /// Ranges of sequences in an envelope's `held`, and as many in its `gone`; further ones are not read.
    package static let maximumReportedRanges = 1_000

    /// Reasons listed in an envelope's `refused`.
    package static let maximumDropReasons = 32
}
