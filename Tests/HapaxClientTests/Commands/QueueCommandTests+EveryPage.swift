import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

extension QueueCommandTests {
    @Test("who changes dead letters takes the queue, and so sets a damaged file aside: retry and purge reach what is in it (I11, I12)")
    func lettersOfADamagedQueue() async throws {
        for (command, told) in [(["retry", "--all"], "unfit"), (["purge", "--all", "--yes"], "purged_dead_letters")] {
            let hapax = CommandLine(server: server.url)
            _ = try await hapax.run("track", String(repeating: "n", count: 201), "--no-flush")
            try DamagedPage.make(in: hapax.queue + "/queue.sqlite", page: 0)
            let list = try await hapax.run("dead-letters", "list")
            #expect(
                list.status == 1 && list.error.contains("the next hapax flush or track sets the file aside"),
                "who only looks changes nothing")
            let output = try await hapax.start(["dead-letters"] + command + ["--json"]).finish()
            #expect(output.json[told] as? Int == 1, "\(output)")
        }
    }

    @Test(
        "purge: whichever page is damaged, of the queue or of one beside it, nothing comes back behind it, and all of it is counted (I1, I11, I12)",
        arguments: [true, false], [true, false])
    func purgeOfEveryPage(isSpool: Bool, withDeadLetters: Bool) async throws {
        let whole = TemporaryDirectory()
        let main = try TestClient(directory: whole)
        let beside = isSpool ? try TestClient(directory: whole) { $0.whenQueueIsTaken = .spool } : nil
        let damaged = beside ?? main
        for number in 1...20 {
            damaged.client.track("tracked \(number)", properties: ["fill": .string(String(repeating: "x", count: 500))])
        }
        damaged.client.track(String(repeating: "n", count: 201))
        for client in [damaged.client, main.client] { await client.shutdown(within: .zero) }
        let file = String(damaged.client.queue.directory.databasePath.dropFirst(whole.path.count))
        let pages = try DamagedPage.pages(of: whole.path + file)
        for page in 0..<pages {
            let hapax = CommandLine(server: server.url)
            try FileManager.default.copyItem(atPath: whole.path + "/queue", toPath: hapax.queue)
            try DamagedPage.make(in: hapax.directory.path + file, page: page)
            let purge = try await hapax.start(["queue", "purge", "--yes", "--json"] + (withDeadLetters ? ["--with-dead-letters"] : []))
                .finish()
            #expect(purge.status == 0, "page \(page): \(purge.error)")
            let left = try TestClient(directory: hapax.directory)
            for _ in 1...2 {
                _ = await left.client.flush()
                _ = try? left.client.deadLetters.list()
            }
            let (dropped, letters) = (await left.client.status().dropped, try left.client.deadLetters.list())
            let said = Comment(rawValue: "page \(page): \(purge.out), \(dropped), \(letters.map(\.reason))")
            let names = Set(left.transport.batches.flatMap(\.names))
            #expect(names.isSubset(of: [QueueDamage.eventName]), said)
            let buried = withDeadLetters ? 0 : letters.filter { $0.reason == DamagedRows.reason }.count
            let purged = try #require(purge.json["purged"] as? Int)
            #expect(dropped["purged"] ?? 0 >= purged, said)
            #expect(Int(dropped["purged"] ?? 0) + Int(dropped["damaged"] ?? 0) + buried >= 20, said)
            if withDeadLetters {
                #expect(letters.isEmpty, said)
            } else {
                #expect(letters.count - buried + Int(dropped["damaged_dead_letter"] ?? 0) >= 1, said)
            }
            #expect(left.client.queue.books.isBalanced, said)
            await left.client.shutdown(within: .zero)
        }
        #expect(pages > 5)
    }
}
