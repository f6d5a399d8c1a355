/// The person or program behind a question, as far as the store cares: whether they are still there.
enum Asker {
    /// Whether nobody waits for the answer any more. A question looks a few times a second, and ends then as if its time were over.
    @TaskLocal static var hasLeft: @Sendable () -> Bool = { false }
}
