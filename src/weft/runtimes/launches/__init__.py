"""What runtimes of drivers share: sessions, queues, memory, programs, images, printed lines."""
