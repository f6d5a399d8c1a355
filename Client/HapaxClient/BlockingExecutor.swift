import Dispatch

/// Runs an actor that waits for the disk.
///
/// The language's own pool has one thread for each core, which the whole process shares, and no others take their place: a disk that hangs
/// would stop the host's tasks as well (https://github.com/swiftlang/swift-evolution/blob/main/proposals/0392-custom-actor-executors.md).
final class BlockingExecutor: SerialExecutor {
    private let queue: DispatchQueue

    init(label: String) {
        queue = DispatchQueue(label: label)
    }

    func enqueue(_ job: UnownedJob) {
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}
