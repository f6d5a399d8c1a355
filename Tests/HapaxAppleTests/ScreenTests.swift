import AppleStubs
import HapaxClient
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@MainActor
@Suite("Screens of SwiftUI", .endsWhenItHangs)
struct ScreenTests {
    private let events: TestEvents
    private let stack = ScreenStack()

    init() throws { events = try TestEvents { $0.automatic.properties = false } }

    private func screens() async -> [String] {
        await events.all(named: "$AppViewScreen").compactMap { if case .string(let name)? = $0["$screen_name"] { name } else { nil } }
    }

    /// Returns once what was told at once has been tracked.
    private func settle() async { await stack.settling?.value }

    @Test("a push, a pop, a tab and a sheet make one event for each change of what is seen, in whatever order views come and go (R42)")
    func eachChangeIsOneEvent() async {
        let (list, note, settings, sheet) = (ScreenStack.Place(), ScreenStack.Place(), ScreenStack.Place(), ScreenStack.Place())
        func show(_ place: ScreenStack.Place, _ name: String) { stack.appeared(place, name, [:], events.client) }
        show(list, "list")
        await settle()
        // A push: what is covered disappears afterwards.
        show(note, "note")
        stack.disappeared(list)
        await settle()
        // A pop, the other way round.
        stack.disappeared(note)
        show(list, "list")
        await settle()
        // A tab that appears, and appears again.
        show(settings, "settings")
        show(settings, "settings")
        stack.disappeared(list)
        await settle()
        // A sheet covers and goes; what was below it is told nothing.
        show(sheet, "sheet")
        await settle()
        stack.disappeared(sheet)
        await settle()
        // Nothing is seen for a moment.
        stack.disappeared(settings)
        await settle()
        show(settings, "settings")
        await settle()
        #expect(await screens() == ["list", "note", "list", "settings", "sheet", "settings"])
    }

    @Test(
        "the modifiers track with the window's client, what the view says, and again when its name changes; two windows have a stack each")
    func modifiersTrack() async {
        struct Note: View {
            var name: String
            var body: some View { Text(name).trackScreen(name, properties: ["unread": 2]) }
        }
        let (first, second) = (StubWindow(), StubWindow())
        func show(_ name: String, in window: StubWindow) async {
            window.show(Note(name: name).eventClient(events.client))
            window.appear()
            for _ in 0..<10 { await Task.yield() }
        }
        await show("note 1", in: first)
        await show("note 2", in: second)
        #expect(await screens() == ["note 1", "note 2"])
        second.disappear()
        for _ in 0..<10 { await Task.yield() }
        #expect(await screens() == ["note 1", "note 2"], "what another window shows is not what is below")
        first.show(Note(name: "note 3").eventClient(events.client))
        for _ in 0..<10 { await Task.yield() }
        #expect(await screens() == ["note 1", "note 2", "note 3"])
        #expect(await events.all(named: "$AppViewScreen").allSatisfy { $0["unread"] == 2 })
    }
}
