import Foundation
import HapaxClient
import TestSupport
import Testing

@testable import hapax

@Suite("What a command sees beside a queue (I1)", .timeLimit(.minutes(20)))
struct SpoolSurveyTests {
    private let directory = TemporaryDirectory()
    private var queue: QueueDirectory { QueueDirectory(path: directory.path + "/queue") }

    /// A spool that cannot be read: its path.
    private func makeUnreadable(_ number: Int = 1) throws -> String {
        let path = queue.spoolPath + "/01976543-0000-7000-8000-00000000000\(number)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: path + "/queue.sqlite"))
        return path
    }

    @Test("those that stay unreadable are told, after some looks: as many for many as for one")
    func unreadableSpoolsAreTold() throws {
        let paths = try (1...9).map(makeUnreadable)
        var pauses = 0
        let survey = SpoolSurvey(of: queue) { pauses += 1 }
        #expect(survey.unusable.map(\.path) == paths && pauses == 2)
    }

    @Test("one that is removed while it is looked at was delivered", arguments: [1, 2])
    func removedSpoolIsNotTold(pause: Int) throws {
        let path = try makeUnreadable()
        var pauses = 0
        let survey = SpoolSurvey(of: queue) {
            pauses += 1
            if pauses == pause { try? FileManager.default.removeItem(atPath: path) }
        }
        #expect(survey.unusable.isEmpty && survey.summaries.isEmpty && pauses == pause)
    }

    @Test("one that its owner has made by the next look counts")
    func finishedSpoolCounts() throws {
        let path = try makeUnreadable()
        let made = directory.path + "/made"
        let other = try EventQueue.open(made, whenTaken: .refuse, durability: .process, clock: SystemClock())
        other.close()
        let survey = SpoolSurvey(of: queue) {
            try? FileManager.default.removeItem(atPath: path)
            try? FileManager.default.moveItem(atPath: made, toPath: path)
        }
        #expect(survey.unusable.isEmpty && survey.summaries.count == 1)
    }

    @Test("what is no queue at all is told as well, and so is a place that cannot be listed")
    func strangersAreTold() throws {
        try FileManager.default.createDirectory(atPath: queue.spoolPath + "/stranger/queue.sqlite", withIntermediateDirectories: true)
        #expect(SpoolSurvey(of: queue) {}.unusable.map(\.path) == [queue.spoolPath + "/stranger"])
        try FileManager.default.removeItem(atPath: queue.spoolPath)
        try Data().write(to: URL(fileURLWithPath: queue.spoolPath))
        #expect(SpoolSurvey(of: queue) {}.unusable.map(\.path) == [queue.spoolPath])
    }
}
