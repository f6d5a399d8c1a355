#if canImport(SwiftUI)
import HapaxClient
import HapaxClientUI
import SwiftUI

struct NotesView: View {
    @State var model: NotesModel
    @State private var text = ""

    var body: some View {
        List {
            TextField("New note", text: $text).onSubmit {
                model.add(text)
                text = ""
            }
            ForEach(model.notes) { note in
                Text(note.text).swipeActions { Button("Delete", role: .destructive) { model.delete(note) } }
            }
        }
        .trackScreen("notes")
    }
}

#Preview {
    NotesView(model: NotesModel(events: NoEvents()))
}

/// As the app's `@main` would be.
struct NotesApp: App {
    init() {
        EventClient.bootstrap(EventClient.Configuration(server: URL(string: "https://events.example.org")!, writeKey: "…"))
        EventClient.shared.attach()
    }

    var body: some Scene {
        WindowGroup { NotesView(model: NotesModel(events: EventClient.shared)).eventClient(.shared) }
    }
}
#endif
