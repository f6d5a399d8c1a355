import HapaxModel

/// The expressions in which the two databases differ.
package struct Dialect: Sendable {
    // MARK: Values

    /// The name of the function that gives the lesser of two values.
    var least: StoreSQL
    /// The present, which is the store's own where it has a clock; else the given Unix milliseconds.
    var now: @Sendable (Int64) -> StoreSQL
    /// A column with an instant, as Unix milliseconds.
    var milliseconds: @Sendable (StoreSQL) -> StoreSQL
    /// A column with an id, as text; and an id as such a column has it, so that it is found by an index.
    var uuidText: @Sendable (StoreSQL) -> StoreSQL
    var uuid: @Sendable (EventID) -> StoreSQL

    // MARK: Events

    /// ``EventID/bucket`` of an event, and its month, as in `2024-11`.
    var bucket: StoreSQL
    var monthOfBucket: StoreSQL
    /// Whether an event is dated more than a day ahead of its arrival; the condition of the index `events_ahead`.
    var isAhead: StoreSQL
    /// Narrows a project's events to those since it was made, where the store knows when that was: there are none before, and the index of arrival
    /// finds them.
    var sinceMade: @Sendable (_ projectID: Int32) -> StoreSQL

    // MARK: Properties

    /// The value of a property (``PropertyLookup``), or NULL; one of ``CanonicalJSON`` to compare it with; and one as its text.
    var value: @Sendable (String) -> StoreSQL
    var valueOf: @Sendable (String) -> StoreSQL
    var textOfValue: @Sendable (StoreSQL) -> StoreSQL
    /// The property `$anonymous_id` as text, or NULL.
    var anonymousID: StoreSQL
    /// The milliseconds of an `$AppEnd`'s `$event_duration`, each rounded half up; NULL if it is no number of seconds in 0…86,400.
    var duration: StoreSQL

    // MARK: Changing rows

    /// Two columns: what ``rows(_:)`` finds a row by, and the table that holds it.
    var rowKey: StoreSQL
    /// A condition for rows by their keys, of which neighbours should lie together.
    var rows: @Sendable (ArraySlice<String>) -> StoreSQL
    var sorted: @Sendable ([String]) -> [String]
    /// Whether a row can be deleted: the embedded store would give the number of its last one again.
    var isRemovable: StoreSQL
    /// What locks the rows of a SELECT; nothing where there is one writer.
    var lock: StoreSQL

    // MARK: Sets of numbers

    /// Sets of numbers (``SequenceSet``): an aggregate of ranges from their first and last, the union of two (with ``StoredNumbers/maximumRanges``
    /// at most), the difference of two, and one as text.
    var ranges: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var union: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var minus: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var text: @Sendable (StoreSQL) -> StoreSQL
}
